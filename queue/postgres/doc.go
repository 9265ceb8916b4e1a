// Package postgres keeps the queue in a PostgreSQL database that several schedulers
// share: one leads, the others stand by.
//
//	leader    callers ──► queue/sqlite, a copy of the queue on this host
//	                        │ commits, as patches of rows
//	                        ▼
//	                      shipper ──► BEGIN · changes(patch, epoch) · rows · COMMIT ──► answers
//	                                                   │
//	standby   readers ──► copy ◄── follower ◄── changes┘
//
// PostgreSQL is the truth: nothing is answered that is not committed there. What decides
// is queue/sqlite, the same code as on one host, on a copy of the tables; PostgreSQL has
// the same tables, and the changes of the rows as a feed, by which the standbys' copies
// follow. The leader goes on to execute while its commits are under way; they are sent in
// one transaction for all that wait, a statement for each kind of change.
//
// Who leads is a row with a growing epoch and a lease in time of the database's clock.
// Each commit of a leader locks that row by its epoch: once another one has taken over,
// nothing of it is committed any more (queue.ErrDeposed).
package postgres
