// Package audit keeps the audit log: who did what, how they came in, which
// commands agents executed and what they changed.
//
// Entries come in, from requests and from what the scheduler observes; out go JSON
// Lines in a folder of the state directory, each of which holds the hash of the
// one before, so that Verify finds what was edited, cut out or moved. Secrets are
// redacted on the way. Requests of people are on disk when Record returns; those of
// agents are written at once in the background and are on disk within 100 ms.
// What cannot be written, or comes faster than it can be, stops no job: the error
// is told, and a record of the gap follows as soon as writing works again.
//
// docs/audit.md describes the format, and what a chain of hashes cannot show.
package audit
