// Package queue is where a job waits, durably: entries, claims with a lease
// and a fencing token, and the Store that keeps them.
//
// In come submissions and, as data (Op), what was decided about them; out go
// claims, in order of priority, then runnable time, then id. A Store promises
// that an acknowledged write survives a kill at any instant, that an entry is
// never claimed twice at once, and that a write with an old fence is refused,
// so that a job's result is recorded exactly once. Of the entries of a tenant
// that have the same key at most one is dispatched; what becomes of the others
// is decided by their policies (Store.Enqueue). An entry can be held back, for the
// jobs that it needs or for a person's answer, and then costs nobody a claim; what
// is noted beside the entries is in the Journal. Package queuetest holds the
// suite that every Store must pass.
package queue
