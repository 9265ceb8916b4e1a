// Package breaker keeps work away from a kind of worker, or a model of its
// provider, that is sick: one circuit breaker for each kind and one for each
// model of a kind, on sony/gobreaker.
//
// Set.Allow says whether a choice may run: it returns a Ticket or an *OpenError. Each
// ticket is settled with how the attempt ended, or discarded if its end tells nothing.
// Set.Changes reports every change of state.
//
// A closed breaker counts how attempts ended within a rolling window and opens
// when too many failed or were slow; one table says which class of error counts against
// the kind and which against the model (see rules). An open one refuses until its time. Then it is
// half-open: it lets a few probes through, closes when as many succeeded and
// opens again when one fails. A rate limit opens it at once until the time
// that the provider named.
//
// An open breaker never allows a run before its time, a half-open one has at most Probes
// attempts running, and a ticket that was settled or discarded holds nothing, whatever
// happened to its breaker meanwhile. It has no goroutine. It reads the clock itself, since gobreaker
// does; times that come from outside are turned into durations at once, so a
// jump of the wall clock moves no breaker.
package breaker
