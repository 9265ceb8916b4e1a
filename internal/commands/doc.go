// Package commands reads a shell script, or the command line of a tool call, and says
// what it runs, writes and sets, so that it can be compared with patterns of what is
// allowed before it runs.
//
// It protects against mistakes and against carelessly generated scripts. It is no
// sandbox: an allowed program (go test, make) runs whatever code it finds.
package commands
