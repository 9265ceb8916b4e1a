// Package strictyaml decodes YAML files that people write by hand and refuses
// whatever it does not understand.
//
// In come the bytes of one file and a Go struct whose tags name the fields;
// out comes the filled struct or every mistake of the file at once, in order
// of position, each with line, column and path, in words that say what to do.
// Rules that concern meaning rather than form are the caller's: it reports
// them by path (Doc.Failf) and they are placed and sorted with the others. A
// mistake is reported once: nothing is said about a field whose form is
// already wrong.
package strictyaml
