// Package policy decides who is next, and what happens to a job after an attempt.
//
// A decision is a function of plain facts and the time, and is returned as data. The
// package has no clock, no I/O, no goroutine and no randomness of its own, so that the
// same history gives the same decision.
//
// A Policy decides who is next. There are four: priority, credit, deficit and drf. They
// share one book (tenants, the heads of their lanes, what they have running and have used
// within a rolling window) and differ in how they rank the tenants that could run now. A
// decision costs O(log n) of n tenants and, in the steady state, no allocation.
package policy
