// Package permit decides whether an attempt may run, and with what budget.
//
// In comes a Request; out comes a Permit or a *Rejection that says why not and
// when to ask again. A permit is used once, for its job and attempt; unused it
// expires. It carries the attempt's cancellation context, whose cause tells
// how the attempt was stopped.
//
// The gate enforces how many run at once (of a kind, a tenant, a workspace and
// in all), how many are asked for in a second and a minute (of a kind and a
// provider's model), what is spent within a rolling window (by a tenant and in
// all), and what a job has been given. While a run goes on, Charge books what
// it consumes at once and says when it has to stop.
//
// A Defence is asked before all that, and may leave fewer slots (Throttle).
//
// The gate promises that no limit is exceeded whatever it is asked, counting
// both what it has seen itself and what the asker claims, whichever is
// stricter, and that of other gates under the same limits what it is told
// (Request.Elsewhere, Learn). Whatever a permit holds is given back exactly once
// on every path: use and settlement, expiry, lapse, revocation. A token of a rate is
// only given back by a permit that was not used: what was never sent to a
// provider does not count against it. What is spent cannot be refused, only what
// comes next: a run's last increment may go beyond its limit.
//
// A permit that is used is valid until its attempt ends, and as long as whoever
// answers for it is heard of: with Limits.Validity, all permits lapse that Renew
// has not renewed within that time (see Lapse). Until then a run may go on
// whose asker stands still; after that none does.
//
// All other times are taken by the monotonic clock; a job's own deadline is one of the
// wall clock until its permit is given, and as far away as it was then after.
package permit
