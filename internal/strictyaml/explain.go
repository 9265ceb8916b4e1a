package strictyaml

import "strings"

// explain turns a message of the YAML parser (goccy/go-yaml 1.19) into one
// that says what to do. A message that it does not know is passed on.
func explain(message string) string {
	for _, known := range []struct{ part, say string }{
		{"'\\t' that cannot start any token", "a tab stands here where YAML wants spaces; indent with spaces"},
		{"found character '\t'", "a tab stands here where YAML wants spaces; indent with spaces"},
		{"tab character", "a tab stands here where YAML wants spaces; indent with spaces"},
		{"double-quoted text", "the quote \" that opens here is never closed"},
		{"single-quoted text", "the quote ' that opens here is never closed"},
		{"']' not found", "the bracket [ that opens here is never closed, or a comma is missing in it"},
		{"'}'", "the brace { that opens here is never closed, or a comma is missing in it"},
		{"corresponding to ']'", "the bracket ] closes nothing"},
		{"corresponding to '}'", "the brace } closes nothing"},
		{"mapping value is not allowed", "a colon and a space make a second value here; put quotes around a text that contains \": \", or check the indentation of the next line"},
		{"block sequence entries are not allowed", "a list's dash cannot follow on the same line; begin the list on the next line"},
		{"value is not allowed in this context", "this line does not fit its surroundings; check its indentation against the lines above"},
		{"unexpected key name", "a colon and a space are missing after the name, as in \"name: value\""},
		{"invalid key", "a name cannot be a list or a mapping; write \"name: value\""},
		{"reserved character", "a text cannot begin with this character; put quotes around it"},
		{"unexpected directive value", "a text cannot begin with %; put quotes around it"},
		{"unknown escape character", "this backslash means nothing between double quotes; write \\\\ for a backslash or use single quotes"},
		{"undefined anchor value", "an anchor (&name) must be followed by a value"},
	} {
		if strings.Contains(message, known.part) {
			return known.say
		}
	}
	return "the file cannot be read as YAML: " + message
}
