// Package policy decides what happens to a job after an attempt.
//
// In come plain facts and the time; out comes a decision as data. There is no
// clock, no I/O, no goroutine and no randomness of its own in here, so that the
// same history gives the same decision.
package policy
