// Package permit decides whether an attempt may run, and with what budget.
//
// In comes a Request; out comes a Permit or a *Rejection that says why not and
// when to ask again. A permit is used once, for its job and attempt; unused it
// expires. It carries the attempt's cancellation context, whose cause tells
// how the attempt was stopped.
//
// The gate promises that no limit is exceeded whatever it is asked, counting
// both what it has seen itself and what the asker claims, whichever is
// stricter, and that whatever a permit holds is given back exactly once on
// every path: use and settlement, expiry, revocation.
package permit
