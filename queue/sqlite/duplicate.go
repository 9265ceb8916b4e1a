package sqlite

import (
	"errors"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// The unfinished entries of a tenant that have the same key stand in a line,
// in the order of submission:
//
//	head ◄── next ◄── last        waits_for: one entry each, the one before it
//	  ▲        ▲
//	  └ a, b   └ c                waits_for and coalesced_with: the one whose result they get
//
// Only the head can be claimed, so that at most one entry of a line is
// dispatched. An entry that is held (hold.go) keeps its place. Whatever takes an entry out of the line (Finish, Cancel, a
// passed deadline, Reclaim) closes the gap in the same transaction.

// line is the entries of a tenant that have the same key, within a transaction.
type line struct {
	tx     *tx
	tenant job.Tenant
	key    string
}

// rank is where a new entry stands in the line of its key.
type rank struct {
	waitsFor, coalescedWith job.ID
	waiting                 string
}

// lineUp finds the place of a new entry, and takes those out of the line whose
// place it takes.
func (l line) lineUp(e newEntry) (rank, error) {
	last, found, err := l.last()
	if err != nil || !found {
		return rank{waiting: e.Waiting}, err
	}
	switch e.policy {
	case job.Reject:
		return rank{}, &queue.DuplicateError{Key: e.key, ID: e.ID, Name: e.Spec.Name, Other: last.id, OtherJob: last.name}
	case job.LatestWins:
		if err := l.supersede(e); err != nil {
			return rank{}, err
		}
		if last, found, err = l.last(); err != nil || !found {
			return rank{waiting: e.Waiting}, err
		}
	}
	r := rank{waitsFor: last.id, waiting: queue.WaitingFor(last.id, last.name, e.key)}
	if e.policy == job.Coalesce {
		r.coalescedWith = last.id
	}
	return r, nil
}

// named is an entry as a message names it; the zero value is none.
type named struct {
	id   job.ID
	name job.Name
}

const (
	ofLine   = ` INDEXED BY entries_line WHERE key <> '' AND state IN ('queued', 'dispatched') AND tenant = ? AND key = ?`
	ofWaiter = ` INDEXED BY entries_waiting WHERE waits_for <> '' AND waits_for = ?`
)

// last returns the last entry of a line that is to have a result of its own.
func (l line) last() (n named, found bool, err error) {
	return l.tx.named(`SELECT id, name FROM entries`+ofLine+` AND coalesced_with = '' ORDER BY seq DESC LIMIT 1`, string(l.tenant), l.key)
}

func (t *tx) named(query string, args ...any) (n named, found bool, err error) {
	found, err = t.row(query, args, &n.id, &n.name)
	return n, found, err
}

// supersede cancels a whole line for a new entry. What is dispatched stays in
// the line until its holder has stopped it.
func (l line) supersede(e newEntry) error {
	if err := job.Queued.CheckMove(job.Cancelled); err != nil {
		return err
	}
	if err := l.stopAsking(); err != nil {
		return err
	}
	why := queue.Superseded(e.ID, e.Spec.Name, l.key)
	err := l.tx.exec(`UPDATE entries SET `+letGo+`, state = 'cancelled', completed_at = ?, waits_for = '', coalesced_with = '', superseded_by = ?, waiting = ?
		WHERE seq IN (SELECT seq FROM entries`+ofLine+` AND state = 'queued')`,
		e.CreatedAt, string(e.ID), why, string(l.tenant), l.key)
	if err != nil {
		return err
	}
	return l.tx.exec(`UPDATE entries SET cancel_requested = true, superseded_by = ?, waiting = ?
		WHERE seq IN (SELECT seq FROM entries`+ofLine+` AND state = 'dispatched' AND superseded_by = '')`,
		string(e.ID), why, string(l.tenant), l.key)
}

// share completes what waits for the result of e, and lets the next of the
// line go.
func (e *standing) share(exit job.ExitKind, deadLetter string, now time.Time) error {
	// Nobody claims them: they are taken through dispatched, with the entry whose result they get.
	if err := errors.Join(job.Queued.CheckMove(job.Dispatched), job.Dispatched.CheckMove(job.Completed)); err != nil {
		return err
	}
	err := e.tx.exec(`UPDATE entries SET `+letGo+`, state = 'completed', exit_kind = ?, dead_letter = ?, completed_at = ?, waits_for = '', waiting = '',
			error_class = (SELECT l.error_class FROM entries l WHERE l.seq = ?)
		WHERE seq IN (SELECT seq FROM entries`+ofWaiter+` AND coalesced_with = ?)`,
		string(exit), deadLetter, now, e.seq, string(e.id), string(e.id))
	if err != nil {
		return err
	}
	before, err := e.before()
	if err != nil {
		return err
	}
	return e.pass(before, now)
}

// before returns the entry that e waits for.
func (e *standing) before() (n named, err error) {
	if e.waitsFor != "" {
		n, _, err = e.tx.named(`SELECT id, name FROM entries WHERE id = ?`, string(e.waitsFor))
	}
	return n, err
}

// leave closes the gap of an entry that has left the line without a result.
// The first that waited for its result takes its place.
func (e *standing) leave(now time.Time) error {
	before, err := e.before()
	if err != nil {
		return err
	}
	heir, found, err := e.tx.named(`SELECT id, name FROM entries`+ofWaiter+` AND coalesced_with = ? ORDER BY seq LIMIT 1`, string(e.id), string(e.id))
	if err != nil {
		return err
	}
	if !found {
		return e.pass(before, now)
	}
	err = e.tx.exec(`UPDATE entries SET coalesced_with = CASE id WHEN ? THEN '' ELSE ? END
		WHERE seq IN (SELECT seq FROM entries`+ofWaiter+` AND coalesced_with = ?)`,
		string(heir.id), string(heir.id), string(e.id), string(e.id))
	if err != nil {
		return err
	}
	if err := e.wait(`id = ?`, heir.id, before, now); err != nil {
		return err
	}
	return e.pass(heir, now)
}

// pass lets all that waits for e wait for another entry, or for none.
func (e *standing) pass(to named, now time.Time) error {
	return e.wait(`seq IN (SELECT seq FROM entries`+ofWaiter+`)`, e.id, to, now)
}

// notBefore sets when an entry is runnable, if that is earlier. It takes the time twice.
const notBefore = `runnable_at = CASE WHEN runnable_at < ? THEN ? ELSE runnable_at END`

// wait lets the entries that which selects by id wait for another, or for
// none: then they can run from now on, which is when their turn came. What is
// held says so as long as it is.
func (e *standing) wait(which string, id job.ID, to named, now time.Time) error {
	if to.id == "" {
		return e.tx.exec(`UPDATE entries SET waits_for = '', waiting = CASE held WHEN '' THEN '' ELSE waiting END, `+notBefore+` WHERE `+which, now, now, string(id))
	}
	return e.tx.exec(`UPDATE entries SET waits_for = ?, waiting = CASE held WHEN '' THEN ? ELSE waiting END WHERE `+which, string(to.id), queue.WaitingFor(to.id, to.name, e.key), string(id))
}
