// Package breaker keeps work away from a kind of worker, or a model of its
// provider, that is sick: one circuit breaker for each kind and one for each
// model of a kind, on sony/gobreaker.
//
// In comes the question whether a choice may run (Allow) and, once for each
// allowed one, how it ended (Settle) or that it says nothing (Discard). Out
// comes a Ticket or an *OpenError, and every change of state as a Change.
//
// A closed breaker counts how attempts ended within a rolling window and opens
// when too many failed or were slow; which class of error speaks against whom
// is one table (see rules). An open one refuses until its time. Then it is
// half-open: it lets a few probes through, closes when as many succeeded and
// opens again when one fails. A rate limit opens it at once until the time
// that the provider named.
//
// It promises that an open breaker never allows before its time, that a
// half-open one has at most Probes attempts out, and that a ticket which was
// settled or discarded holds nothing, whatever happened to its breaker
// meanwhile. It has no goroutine. It reads the clock itself, since gobreaker
// does; times that come from outside are turned into durations at once, so a
// jump of the wall clock moves no breaker.
package breaker
