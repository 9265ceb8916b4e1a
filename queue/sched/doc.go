// Package sched is the queue for programs outside the scheduler: they enqueue
// work with a payload of their own, claim it, and complete it.
//
// In come the calls kernel.sched.enqueue, claim, complete, cancel, get, list,
// gc_expired and gc_dispatched, as Go methods of Kernel or by their names with
// JSON (Kernel.Call), where the spelling of RFC 0007 is taken too; out go entries,
// or errors with the codes -32131 to -32135.
// It promises what the store below promises: what was acknowledged is durable,
// nothing is claimed twice at once, and a claim that was given up cannot
// complete anything.
package sched
