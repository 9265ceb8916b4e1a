// Package permit decides whether an attempt of a job may run, and with what budget.
//
// A Gate takes a Request and gives out a Permit, or a *Rejection that says why not and
// when to ask again. A permit is for one attempt and is used once. It carries the
// attempt's context, whose cause says how the attempt was stopped. Its life:
//
//	Request ──► being made ──► unused ──Use──► in use ──SettleWith──► ended
//	                │            │                │
//	             refused      expired,         revoked, lapsed: the context is
//	                          revoked,         cancelled; the run settles it when
//	                          lapsed: ended    its last process is gone
//
// The gate guarantees, whatever it is asked and in whatever order:
//
//   - Slots. When a permit is given out, n + 1 ≤ L for each limit L that counts it: of the
//     kind of worker, the tenant, the workspace, and MaxConcurrent. n are the permits, in
//     use or not, that the gate has and that Request.Elsewhere names.
//   - Rates. In any span d a bucket of n a period lets at most n + n·d/period permits
//     through.
//   - Cost windows. A permit is only given out while the sum of a window is below MaxUSD.
//     What is spent cannot be refused, so a window is exceeded by at most one increment of
//     each run that is under way, and by runs whose requests reserve (see Permit.Reserve) only
//     by what responses used beyond what they had reserved.
//   - Budgets. An attempt begins only if its job has attempts, time, cost and tokens left
//     (see Gate.budget), by the gate's record or the request's claim, whichever is stricter.
//   - One attempt of a job has a permit at a time. Two could together exceed what each of
//     them is granted.
//   - Return. What a permit holds is given back exactly once, on every path. A token of a
//     rate is given back only if the permit was not used: what was never sent to a provider
//     does not count against its limit.
//
// Limits hold when a permit is given out. A lower limit that Configure sets later ends no
// run; a new cost window does, at the run's next Charge.
//
// Several gates under the same limits hold them together: Request.Elsewhere is what the
// others hold now, and Shared, which is a gate, too, keeps rates and cost windows. Learn tells
// of what was spent elsewhere by runs whose requests no gate sees.
//
// With Limits.Validity, permits lapse that Renew has not renewed in time (see Gate.Lapse),
// so that no run goes on for long without a scheduler. A Lease is the rule by which they do.
//
// Times are measured by the monotonic clock. A job's deadline is a time of the wall clock
// until its permit is given out; from then on it is as far away as it was then. Renew and
// Lapse use a clock that goes on while the host sleeps.
package permit
