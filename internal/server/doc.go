// Package server is the door through which other processes reach a running
// scheduler: JSON over HTTP on a unix socket in the state directory that only
// its owner may open.
//
// In come requests; out go jobs, their events and attempts, live updates as
// JSON Lines, how the scheduler fares, and the effects of a cancel, a resume and
// a restart. Package client is the other end.
package server
