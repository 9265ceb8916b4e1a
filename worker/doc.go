// Package worker runs one attempt of a job on one worker program and is the
// place where further kinds of worker are plugged in.
//
// In comes a Task; out come events while it runs and, once, a job.Outcome. An
// Adapter knows one program: how it is started, what its output lines mean,
// how it is asked to stop and what its end amounts to. It starts no process
// itself: Runner does, in a process tree of its own, and promises that none of
// it is alive when the outcome is returned, whatever the program did.
//
// To add a kind of worker, implement Adapter and Session, run the suite in
// package workertest against it, and list it in the two mains. Or write no Go
// at all: any program that speaks the JSON Lines protocol of
// docs/worker-protocol.md runs through the exec adapter.
package worker
