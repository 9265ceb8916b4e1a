// Package shell is the worker that runs a job's instructions as a shell script.
//
// In comes a Task whose Instructions are a script; out come its standard output
// as text, line by line, and the end of it as the answer. There is no model and
// no agent: exit status 0 is success, anything else a failure whose message is
// the end of standard error.
//
// A job without the capability run_commands runs only scripts all of whose
// commands its patterns allow; this is read from the script before it starts,
// see checkScript. It is a fence against mistakes and against scripts that
// somebody else generated carelessly. It is no sandbox: an allowed program (go
// test, make) runs whatever code it finds.
package shell
