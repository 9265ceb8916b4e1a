// Package exec is the worker that runs any program which speaks the worker
// protocol: one JSON object a line, a task in, events and one result out. It is
// specified in docs/worker-protocol.md, of which message.go is the Go form.
//
// In comes a Task and the settings' Command; what the program prints becomes
// events. The program is not trusted to keep the protocol: whatever it prints,
// and however it ends, the run has a result, and it is a success only if the
// program said so in a result line and exited with status 0.
package exec
