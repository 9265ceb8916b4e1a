// Package shell is the worker that runs a job's instructions as a shell script.
//
// Each line of the script's standard output is a text event, and the end of the output is
// the answer. There is no model and no agent: exit status 0 is a success, anything else a
// failure with the end of standard error as its message.
//
// A job without the capability run_commands runs only a script in which every command
// matches one of its patterns: see commands.Check, which reads that from the script before
// it starts.
package shell
