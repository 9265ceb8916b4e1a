// Package oversight decides when a person must agree to what a job has made, and
// what follows from the answer.
//
// In come the job, the outcome of an attempt, a few facts and a number that was
// drawn; out comes whether to ask and why, in a sentence for that person. There is
// no clock, no I/O and no randomness in here: the same attempt of the same job is
// decided the same way again, in a replay too.
package oversight
