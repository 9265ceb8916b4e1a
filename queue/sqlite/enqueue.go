package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// newEntry is an entry ready to be stored: what can fail or takes time is done
// by the caller's goroutine, not by the writer's.
type newEntry struct {
	*queue.Entry
	spec   string
	flow   string // as it is stored, "" is none
	policy job.DuplicatePolicy
	key    string // "" with job.RunEach
}

// Enqueue implements queue.Store. Of the entries only what a new one can have
// is stored: what was asked for, its times, its choice, session, feedback,
// Waiting, Held and Resolved.
func (s *Store) Enqueue(ctx context.Context, b queue.Batch, entries []queue.Entry) error {
	fresh := make([]newEntry, len(entries))
	for i := range entries {
		var err error
		if fresh[i], err = prepare(b.ID, &entries[i]); err != nil {
			return fmt.Errorf("enqueue job %s (%q): %w", entries[i].ID, entries[i].Spec.Name, err)
		}
	}
	if b.ID == "" {
		return errors.New("enqueue: the batch has no id")
	}
	workflow, err := encode(&b.Workflow)
	if err != nil {
		return fmt.Errorf("enqueue batch %s: %w", b.ID, err)
	}
	if workflow == "{}" {
		workflow = ""
	}
	if s.writer != nil {
		if b := s.writer.tx.bounds.Load(); b != nil {
			if err := b.CheckSubmission(len(entries)); err != nil {
				return err
			}
		}
	}
	err = s.write(ctx, func(t *tx) error { return t.enqueue(b, workflow, fresh) })
	if err != nil {
		return fmt.Errorf("enqueue %d jobs of batch %s: %w", len(entries), b.ID, err)
	}
	s.writer.leases.expires(entries)
	return nil
}

// prepare checks that e can be stored in batch and read back, and encodes it.
func prepare(batch job.BatchID, e *queue.Entry) (fresh newEntry, err error) {
	fresh.Entry = e
	switch {
	case e.ID == "":
		return fresh, errors.New("it has no id")
	case e.Batch != "" && e.Batch != batch:
		return fresh, fmt.Errorf("it belongs to batch %s, not %s", e.Batch, batch)
	case e.State != "" && e.State != job.Queued:
		return fresh, fmt.Errorf("new entry in state %s: %w", e.State, queue.ErrIllegalTransition)
	}
	if e.Held != "" {
		if err := checkHold(e.Held); err != nil {
			return fresh, err
		}
	}
	fresh.policy, fresh.key = e.Spec.Duplicates()
	if p := fresh.policy; p != job.RunEach && !slices.Contains(job.DuplicatePolicies(), p) {
		return fresh, fmt.Errorf("unknown policy %q for duplicates", p)
	}
	// A negative duration is written without complaint but cannot be read back.
	for _, d := range []job.Duration{e.Spec.Limits.Timeout, e.Spec.Limits.MaxCommandTime, e.Spec.Limits.RetryBudget.Time} {
		if d < 0 {
			return fresh, fmt.Errorf("a limit is negative: %s", d)
		}
	}
	if e.Spec.Limits.Memory < 0 {
		return fresh, fmt.Errorf("a limit is negative: %s", e.Spec.Limits.Memory)
	}
	if e.Resolved != nil {
		if fresh.flow, err = encode(&flow{Resolved: e.Resolved}); err != nil {
			return fresh, err
		}
	}
	fresh.spec, err = encode(&e.Spec)
	return fresh, err
}

func (t *tx) enqueue(b queue.Batch, workflow string, entries []newEntry) error {
	if err := t.refuseDead(entries); err != nil {
		return err
	}
	if err := t.makeRoom(entries); err != nil {
		return err
	}
	if len(entries) > 1 || len(entries) == 1 && (entries[0].policy != job.RunEach || entries[0].RequeuedFrom != "") {
		if err := t.protect(); err != nil {
			return err
		}
	}
	batch, pool, err := t.poolOf(b.ID)
	if errors.Is(err, queue.ErrNotFound) {
		batch, pool, err = t.addBatch(b, workflow, entries)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := t.add(batch, pool, e); err != nil {
			return err
		}
	}
	return nil
}

// add stores a new entry of a batch whose entries are in the pool.
func (t *tx) add(batch, pool int64, e newEntry) error {
	r := rank{waiting: e.Waiting}
	if e.policy != job.RunEach {
		var err error
		if r, err = t.lineUp(e); err != nil {
			return err
		}
	}
	if e.Spec.Type == job.External {
		pool = externalPool
	}
	if e.Held != "" {
		pool, r.waiting = heldPool(pool), e.Waiting
	}
	err := t.exec(`INSERT INTO entries (id, batch, pool, tenant, name, priority, class, created_at, runnable_at, deadline,
			key, waits_for, coalesced_with, choice, session, session_worker, feedback, waiting, agent, requeued_from, held, joined, worker)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		string(e.ID), batch, pool, string(e.Spec.Tenant), string(e.Spec.Name), e.Spec.Priority, classOf(e.Spec.Class),
		nanos(e.CreatedAt), nanos(e.RunnableAt), nanosOrNull(e.Deadline), e.key, string(r.waitsFor), string(r.coalescedWith),
		e.Choice, e.Session, string(e.SessionWorker), e.Feedback, r.waiting,
		string(e.Spec.Agent), string(e.RequeuedFrom), string(e.Held), e.Spec.Flow.Joined, string(e.Spec.Worker))
	switch {
	case isUnique(err):
		same := "name in its batch"
		if _, found, err := t.number("SELECT 1 FROM entries WHERE id = ?", []any{string(e.ID)}); err != nil {
			return fmt.Errorf("job %s: %w", e.ID, err)
		} else if found {
			same = "id"
		}
		return fmt.Errorf("job %s (%q of tenant %s): %w: another job has the same %s", e.ID, e.Spec.Name, e.Spec.Tenant, queue.ErrDuplicate, same)
	case err != nil:
		return fmt.Errorf("job %s: %w", e.ID, err)
	}
	if err := t.exec(`INSERT INTO specs (entry, spec) VALUES (last_insert_rowid(), ?)`, e.spec); err != nil {
		return fmt.Errorf("specification of job %s: %w", e.ID, err)
	}
	if e.flow != "" { // the last row is its specification, which has its number
		if err := t.exec(`INSERT INTO flows (entry, flow) VALUES (last_insert_rowid(), ?)`, e.flow); err != nil {
			return fmt.Errorf("job %s: %w", e.ID, err)
		}
	}
	if e.RequeuedFrom != "" {
		if err := t.requeuedAs(e.RequeuedFrom, e.ID); err != nil {
			return fmt.Errorf("job %s: %w", e.ID, err)
		}
	}
	return nil
}

// classOf returns what is stored of a class: nothing of the usual one.
func classOf(c job.Class) string {
	if c.Or() == job.Standard {
		return ""
	}
	return string(c)
}

// addBatch stores b. A single entry of a new batch can only fail by its id, so
// a look at that saves the savepoint.
func (t *tx) addBatch(b queue.Batch, workflow string, entries []newEntry) (seq, pool int64, err error) {
	if len(entries) == 1 {
		e := entries[0]
		_, found, err := t.number(`SELECT seq FROM entries WHERE id = ?`, []any{string(e.ID)})
		if err != nil {
			return 0, 0, err
		}
		if found {
			return 0, 0, fmt.Errorf("job %s (%q of tenant %s): %w", e.ID, e.Spec.Name, e.Spec.Tenant, queue.ErrDuplicate)
		}
	}
	err = t.exec(`INSERT INTO batches (id, source, digest, private, created_at, closed_at, workflow) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		string(b.ID), b.Source, b.Digest, b.Private, nanos(b.CreatedAt), nanosOrNull(b.ClosedAt), workflow)
	if err != nil {
		return 0, 0, err
	}
	return t.poolOf(b.ID)
}

// poolOf returns a batch and the pool of its entries.
func (t *tx) poolOf(id job.BatchID) (seq, pool int64, err error) {
	if b, ok := t.known[id]; ok {
		return b.seq, b.pool, nil
	}
	err = t.row(`SELECT seq, CASE WHEN private THEN seq ELSE 0 END FROM batches WHERE id = ?`, []any{string(id)}, &seq, &pool)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("batch %s: %w", id, queue.ErrNotFound)
	}
	if err == nil {
		t.remember(id, knownBatch{seq, pool})
	}
	return seq, pool, err
}

// knownBatch is a batch that the writer need not look up again.
type knownBatch struct{ seq, pool int64 }

// maxKnown is how many batches are known at once.
const maxKnown = 64

func (t *tx) remember(id job.BatchID, b knownBatch) {
	if t.known == nil || len(t.known) == maxKnown {
		t.known = map[job.BatchID]knownBatch{}
	}
	t.known[id] = b
}

// forgetBatches must be called where batches may have gone or changed: whatever
// takes back what was written, and whatever deletes or shares them.
func (t *tx) forgetBatches() { t.known = nil }

// closeBatch marks a batch as closed; one that is so already keeps its time.
func (t *tx) closeBatch(id job.BatchID, now time.Time) error {
	seq, _, err := t.poolOf(id)
	if err != nil {
		return err
	}
	return t.exec(`UPDATE batches SET closed_at = ? WHERE seq = ? AND closed_at IS NULL`, nanos(now), seq)
}

// adopt shares what is left of all private batches. Of what has ended nobody
// asks any more in which pool it was.
func (t *tx) adopt() error {
	if err := t.protect(); err != nil {
		return err
	}
	const queued, waiting, dispatched = `INDEXED BY entries_lane WHERE state = 'queued' AND waits_for = ''`,
		`INDEXED BY entries_waiting_pool WHERE waits_for <> ''`, `INDEXED BY entries_fence WHERE state = 'dispatched'`
	for _, part := range []struct {
		which, pools string
		shared       int64
	}{
		{queued, `pool > 0`, sharedPool}, {waiting, `pool > 0`, sharedPool}, {dispatched, `pool > 0`, sharedPool},
		{queued, `pool < -3`, heldPool(sharedPool)}, {waiting, `pool < -3`, heldPool(sharedPool)},
	} {
		err := t.exec(`UPDATE entries SET pool = ? WHERE seq IN (SELECT seq FROM entries `+part.which+` AND `+part.pools+`)`, part.shared)
		if err != nil {
			return err
		}
	}
	t.forgetBatches()
	t.touched.moved = true
	return t.exec(`UPDATE batches SET private = 0 WHERE private`)
}

// setPrivate moves what is left of a batch into the pool that is now its own, as
// adopt does: external work is in none of these pools and stays where it is.
func (t *tx) setPrivate(op queue.SetPrivate) error {
	seq, from, err := t.poolOf(op.ID)
	if err != nil {
		return err
	}
	if err := t.protect(); err != nil {
		return err
	}
	to := int64(sharedPool)
	if op.Private {
		to = seq
	}
	const left = ` WHERE batch = ? AND state IN ('queued', 'dispatched')`
	for _, move := range [][2]int64{{from, to}, {heldPool(from), heldPool(to)}} {
		if err := t.exec(`UPDATE entries SET pool = ?`+left+` AND pool = ?`, move[1], seq, move[0]); err != nil {
			return err
		}
	}
	if op.Waiting != "" {
		if err := t.exec(`UPDATE entries SET waiting = ?`+left+` AND state = 'queued' AND waits_for = '' AND pool = ?`, op.Waiting, seq, to); err != nil {
			return err
		}
	}
	t.forgetBatches()
	t.touched.moved = true
	return t.exec(`UPDATE batches SET private = ? WHERE seq = ?`, op.Private, seq)
}
