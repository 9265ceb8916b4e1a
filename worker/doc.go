// Package worker runs one attempt of a job on one worker program and is the
// place where further kinds of worker are plugged in.
//
// An Adapter knows one program. It turns a Task into a Session, which knows how
// the program is started and, as a machine of inputs and actions, what its output
// means, what to tell it while it runs and what its end amounts to. Neither starts
// a process: the Runner does, in a process tree of its own. It feeds the session,
// does what the session says, and returns one job.Outcome. When Run returns,
// nothing of the tree is alive, whatever the program did.
//
// To add a kind of worker, implement Adapter and Session in a folder of your own,
// run the suite in package workertest against it, and name it in one line: in
// internal/agentcore/adapters.go, or in a program of your own (app.WithAdapter). What else the
// scheduler must know of it (whether its instructions are a script, whether it keeps
// steps, which npm package it comes in), the adapter says by the optional interfaces in
// traits.go; an adapter without them is an ordinary agent. A session is used by one
// goroutine, keeps no clock (it sets timers), and is the only writer of the worker's
// standard input. A worker
// need not be written in Go: the exec adapter runs any program that speaks the JSON Lines
// protocol of docs/worker-protocol.md.
package worker
