// Package policy decides who is next, and what happens to a job after an attempt.
//
// In come plain facts and the time; out comes a decision as data. There is no
// clock, no I/O, no goroutine and no randomness of its own in here, so that the
// same history gives the same decision.
//
// Who is next is a Policy, of which there are four: priority, credit, deficit
// and drf. They share one book (tenants, the heads of their lanes, what they
// have in flight and have used within a rolling window) and differ in how they
// rank the tenants that could run now. A decision costs O(log n) of n tenants
// and, in the steady state, no allocation.
package policy
