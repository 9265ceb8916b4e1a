package sqlite

import (
	"database/sql"
	"errors"

	"github.com/agentsched/agentsched/job"
)

// scope is the part of the queue that a claim looks at, and the statements
// that walk it. Each names its index, so that a plan that would read the whole
// table is an error and not a slow day.
type scope struct {
	batch int64 // 0 any
	args  []any // of where

	priorityQuery, pageQuery, afterQuery, overdueQuery, deadlineQuery, readyQuery string
}

const (
	ofAny   = ` INDEXED BY entries_claim WHERE state = 'queued' AND waits_for = ''`
	ofBatch = ` INDEXED BY entries_claim_batch WHERE state = 'queued' AND waits_for = '' AND batch = ?`

	dueOfAny   = ` INDEXED BY entries_deadline WHERE state = 'queued'`
	dueOfBatch = ` INDEXED BY entries_deadline_batch WHERE state = 'queued' AND batch = ?`

	selectPriority = `SELECT priority FROM entries`
	whichPriority  = ` AND priority <= ? ORDER BY priority DESC LIMIT 1`

	selectAfter = `SELECT runnable_at FROM entries`
	whichAfter  = ` AND priority = ? AND runnable_at > ? ORDER BY runnable_at LIMIT 1`

	whichPage = ` AND priority = ? AND runnable_at <= ? AND (runnable_at, e.id) > (?, ?) ORDER BY runnable_at, e.id LIMIT ?`

	selectOverdue = `SELECT seq, id FROM entries e`
	whichOverdue  = mayExpire + ` AND deadline <= ? ORDER BY deadline`

	selectDeadline = `SELECT deadline FROM entries e`
	whichDeadline  = mayExpire + ` AND deadline > ? ORDER BY deadline LIMIT 1`

	// What waits for the result of a dispatched entry has been started in time.
	mayExpire = ` AND (coalesced_with = '' OR (SELECT l.state FROM entries l WHERE l.id = e.coalesced_with) <> 'dispatched')`

	selectReady = `SELECT class, count(*), min(runnable_at) FROM (SELECT class, runnable_at FROM entries`
	whichReady  = ` AND priority = ? AND runnable_at <= ? ORDER BY runnable_at, id LIMIT ?) GROUP BY class`

	selectCandidates = `SELECT ` + entryColumns + ` FROM entries e`
)

// scopeOf returns the whole queue for "", else that batch's part.
func (t *tx) scopeOf(batch job.BatchID) (scope, error) {
	if batch == "" {
		return scope{
			priorityQuery: selectPriority + ofAny + whichPriority,
			pageQuery:     selectCandidates + ofAny + whichPage,
			afterQuery:    selectAfter + ofAny + whichAfter,
			overdueQuery:  selectOverdue + dueOfAny + whichOverdue,
			deadlineQuery: selectDeadline + dueOfAny + whichDeadline,
			readyQuery:    selectReady + ofAny + whichReady,
		}, nil
	}
	seq, err := t.findBatch(batch)
	return scope{
		batch:         seq,
		args:          []any{seq},
		priorityQuery: selectPriority + ofBatch + whichPriority,
		pageQuery:     selectCandidates + ofBatch + whichPage,
		afterQuery:    selectAfter + ofBatch + whichAfter,
		overdueQuery:  selectOverdue + dueOfBatch + whichOverdue,
		deadlineQuery: selectDeadline + dueOfBatch + whichDeadline,
		readyQuery:    selectReady + ofBatch + whichReady,
	}, err
}

// with returns the scope's arguments followed by more.
func (s scope) with(more ...any) []any { return append(s.args[:len(s.args):len(s.args)], more...) }

// priority returns the highest priority of a queued entry, up to most.
func (t *tx) priority(s scope, most int64) (priority int64, found bool, err error) {
	return t.number(s.priorityQuery, s.with(most))
}

// firstAfter returns the earliest RunnableAt after now in a priority.
func (t *tx) firstAfter(s scope, priority, now int64) (at int64, found bool, err error) {
	return t.number(s.afterQuery, s.with(priority, now))
}

// firstDeadline returns the earliest deadline after now.
func (t *tx) firstDeadline(s scope, now int64) (at int64, found bool, err error) {
	return t.number(s.deadlineQuery, s.with(now))
}

// number returns what a query for at most one integer found.
func (t *tx) number(query string, args []any) (n int64, found bool, err error) {
	err = t.row(query, args, &n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return n, err == nil, err
}

// candidates returns the next entries behind a place, at most size.
func (t *tx) candidates(s scope, at place, now int64, size int) ([]*entryRow, error) {
	var page []*entryRow
	err := t.rows(s.pageQuery, s.with(at.priority, now, at.runnableAt, at.id, size), func(rows *sql.Rows) error {
		row := &entryRow{}
		page = append(page, row)
		return row.scan(rows)
	})
	return page, err
}

// overdueEntry is a queued entry whose deadline has passed.
type overdueEntry struct {
	seq int64
	id  job.ID
}

func (t *tx) overdue(s scope, now int64) (list []overdueEntry, err error) {
	err = t.rows(s.overdueQuery, s.with(now), func(rows *sql.Rows) error {
		var o overdueEntry
		err := rows.Scan(&o.seq, &o.id)
		list = append(list, o)
		return err
	})
	return list, err
}
