package sqlite

import (
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// The pools that are no private batch's. Each entry is in one, see the
// migrations; what is held is in that of heldPool.
const (
	sharedPool   = 0
	externalPool = -1
)

// scope is the part of the queue that a claim looks at: a pool and, if that is a
// private batch's, the heads of other batches that it waits for (heads.go).
type scope struct {
	db    *db
	pool  int64
	batch job.BatchID // "" of the pools that are none's
}

// Statements that walk a scope. Each names its index, so that a plan that would
// read the whole table is an error and not a slow day.
const (
	ofPool = ` FROM entries e INDEXED BY entries_lane WHERE state = 'queued' AND waits_for = '' AND pool = ?`
	due    = ` FROM entries e INDEXED BY entries_deadline WHERE state = 'queued' AND held <> 'approval'`

	// A lane's first entry is found with the lane itself. The next lane is sought
	// behind the latest moment of the one before: for a row value SQLite seeks to
	// what is equal, which would be all of that lane.
	selectFirstLane = `SELECT tenant, priority, runnable_at, id` + ofPool + inOrder
	selectNextLane  = `SELECT tenant, priority, runnable_at, id` + ofPool + ` AND (tenant, priority, runnable_at) > (?, ?, ?)` + inOrder
	inOrder         = ` ORDER BY tenant, priority, runnable_at, id LIMIT 1`

	ofLane      = ofPool + ` AND tenant = ? AND priority = ?`
	selectPage  = `SELECT ` + entryColumns + ofLane + ` AND (runnable_at, id) > (?, ?) ORDER BY e.runnable_at, e.id LIMIT ?`
	selectPeek  = `SELECT runnable_at, id` + ofLane + ` AND (runnable_at, id) > (?, ?) ORDER BY runnable_at, id LIMIT 1`
	selectAfter = `SELECT runnable_at` + ofLane + ` AND runnable_at > ? ORDER BY runnable_at LIMIT 1`
	selectNamed = `SELECT ` + entryColumns + ` FROM entries e WHERE e.id = ? AND e.state = 'queued' AND e.waits_for = '' AND e.pool = ? AND e.runnable_at <= ?`
	selectReady = `SELECT class, count(*), min(runnable_at) FROM (SELECT class, runnable_at` + ofLane + ` AND runnable_at <= ?
		ORDER BY runnable_at, id LIMIT ?) r GROUP BY class`

	// Each is asked of a pool and then of what is held of it: for an IN SQLite makes a table.
	selectOverdue  = `SELECT seq, id` + due + ` AND pool = ?` + mayExpire + ` AND deadline <= ?`
	selectDeadline = `SELECT deadline` + due + ` AND pool = ?` + mayExpire + ` AND deadline > ? ORDER BY deadline LIMIT 1`

	// What waits for the result of a dispatched entry has been started in time, also
	// if a person looks at that result.
	mayExpire = ` AND (coalesced_with = '' OR NOT (SELECT l.state = 'dispatched' OR l.held = 'approval' FROM entries l WHERE l.id = e.coalesced_with))`
)

// scopeOf returns what a claim looks at; false if its batch is no private one.
func (d *db) scopeOf(spec *queue.ClaimSpec) (scope, bool, error) {
	switch {
	case spec.External && spec.Batch != "":
		return scope{}, false, errors.New("external work is in no private batch")
	case spec.External:
		return scope{db: d, pool: externalPool}, true, nil
	case spec.Batch == "":
		return scope{db: d, pool: sharedPool}, true, nil
	}
	seq, found, err := d.number(`SELECT seq FROM batches WHERE id = ? AND private`, string(spec.Batch))
	return scope{db: d, pool: seq, batch: spec.Batch}, found, err
}

// place is where an entry stands in its lane.
type place struct {
	runnableAt int64
	id         string
}

// laneHead is a lane and the place of its first entry.
type laneHead struct {
	lane job.Lane
	place
}

// lanes returns the lanes of the scope's pool, each found with one seek.
func (s scope) lanes() (list []laneHead, err error) {
	l := laneHead{lane: job.Lane{Batch: s.batch}}
	found, err := s.db.row(selectFirstLane, []any{s.pool}, &l.lane.Tenant, &l.lane.Priority, &l.runnableAt, &l.id)
	for found {
		list = append(list, l)
		found, err = s.db.row(selectNextLane, []any{s.pool, string(l.lane.Tenant), l.lane.Priority, int64(latest)}, &l.lane.Tenant, &l.lane.Priority, &l.runnableAt, &l.id)
	}
	return list, err
}

// page returns the next entries of a lane behind a place, at most size.
func (s scope) page(l job.Lane, at place, size int) ([]*entryRow, error) {
	page, err := collect(s.db, scanRow, selectPage, s.pool, string(l.Tenant), l.Priority, at.runnableAt, at.id, size)
	if err != nil {
		return nil, fmt.Errorf("read lane of tenant %s, priority %d: %w", l.Tenant, l.Priority, err)
	}
	return page, nil
}

// peek returns the place of the next entry of a lane behind a place, from the
// index alone.
func (s scope) peek(l job.Lane, at place) (p place, found bool, err error) {
	found, err = s.db.row(selectPeek, []any{s.pool, string(l.Tenant), l.Priority, at.runnableAt, at.id}, &p.runnableAt, &p.id)
	return p, found, err
}

// firstAfter returns the earliest RunnableAt after now in a lane.
func (s scope) firstAfter(l job.Lane, now int64) (at int64, found bool, err error) {
	return s.db.number(selectAfter, s.pool, string(l.Tenant), l.Priority, now)
}

// firstDeadline returns the earliest deadline after now, of what is held too.
func (s scope) firstDeadline(now int64) (at int64, found bool, err error) {
	for _, pool := range []int64{s.pool, heldPool(s.pool)} {
		first, any, err := s.db.number(selectDeadline, pool, now)
		if err != nil {
			return 0, false, err
		}
		if any && (!found || first < at) {
			at, found = first, true
		}
	}
	return at, found, nil
}

// overdueEntry is a queued entry whose deadline has passed.
type overdueEntry struct {
	seq int64
	id  job.ID
}

func (s scope) overdue(now int64) (found []overdueEntry, err error) {
	for _, pool := range []int64{s.pool, heldPool(s.pool)} {
		more, err := collect(s.db, func(row scanner) (o overdueEntry, err error) {
			err = row.Scan(&o.seq, &o.id)
			return o, err
		}, selectOverdue, pool, now)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}
