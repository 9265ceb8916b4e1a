// Package fleet joins schedulers that work on one queue: one leads, and the others
// stand by and pass on to it what only it can answer.
//
//	client ─► guard ─► server of a standby ─► Pass ═ TLS, both ends known ═► Peers ─► server of the leader
//	                     │ reads: its own copy of the queue
//
// In comes a request that a guard has let in, with who asks; out goes the leader's
// answer, or a problem (RFC 9457). Schedulers know each other by the fingerprints of
// their certificates, which each registers where all of them look (Members): no
// authority signs anything, and a name or an address proves nothing.
//
// It promises that a request is passed on once at most, that one which may have
// changed something is never sent twice, that what a client has written by Pass it
// reads there afterwards, and that streams end when the leader changes, so that their
// clients come back and go on at the new one.
package fleet
