// Package exec runs any program that speaks the worker protocol: it reads one task and
// prints events and one result, each a JSON object a line. docs/worker-protocol.md
// specifies the protocol, and message.go is its Go form.
//
// The program is not trusted to keep the protocol. Whatever it prints and however it
// ends, the run has a result, and the result is a success only if the program said so in
// a result line and exited with status 0.
package exec
