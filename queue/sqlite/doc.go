// Package sqlite keeps the queue in one SQLite file: a queue.Store without a
// server, in pure Go.
//
// In come the Store's calls from any number of goroutines; out goes what the
// file holds. One goroutine writes and commits in groups: callers that arrive
// while a commit is under way share the next one, each in a savepoint of its
// own, and each is answered only after the commit is on disk (write-ahead log,
// synchronous=FULL). Reads run beside it on connections of their own, also
// from other processes (OpenReadOnly). The file is never deleted or repaired:
// what cannot be read is reported with its path and left as it is.
package sqlite
