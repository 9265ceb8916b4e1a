// Package job says what a job is: its specification and the rules that a
// specification must obey, its identifiers, the two state machines that it
// moves through, the events and the outcome of an attempt, and the error
// classes that decide what happens next.
//
// Nothing comes in and nothing goes out: the package is types and rules, it
// imports nothing of this project but what a field is (internal/fields), does no
// I/O and reads no clock. Everything else in the project speaks in its words, on
// the wire, in the store and to the user.
package job
