// Package watchdog says whether the host, the core and each run are healthy,
// and what to do if they are not. From measurements, events and the time it makes
// decisions with their evidence:
//
//   - Metrics keeps rolling figures, and Snapshot names them as the wire does.
//   - Stall and Repetition look at one run: a Finding says why to stop it.
//   - Defence looks at the whole: it climbs from normal to shed, throttle,
//     open_breaker and escalate and back, and answers who is admitted meanwhile.
//   - Escalations turns single grave facts into things a person must know, and
//     says what is to be put out of use because of them (internal/isolation).
//
// Nothing here reads a clock, starts a goroutine or does I/O: the same history
// gives the same decisions. Memory is bounded, however much is observed.
// What must be read from the system is read by internal/agentcore.
package watchdog
