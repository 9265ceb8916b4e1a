// Package job says what a job is: its specification and the rules that a
// specification must obey, its identifiers, the two state machines that it
// moves through, the events and the outcome of an attempt, and the error
// classes that decide what happens next.
//
// The package is types and rules. It imports nothing of this project but internal/fields,
// does no I/O and reads no clock. The wire, the store and the user interfaces use its
// types and its words.
package job
