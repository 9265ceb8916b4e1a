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
	policy job.DuplicatePolicy
	key    string // "" with job.RunEach
}

// Enqueue implements queue.Store. Of the entries only what a new one can have
// is stored: what was asked for, its times, its choice, session, feedback and
// Waiting.
func (s *Store) Enqueue(ctx context.Context, b queue.Batch, entries []queue.Entry) error {
	fresh := make([]newEntry, len(entries))
	for i := range entries {
		spec, err := prepare(b.ID, &entries[i])
		if err != nil {
			return fmt.Errorf("enqueue job %s (%q): %w", entries[i].ID, entries[i].Spec.Name, err)
		}
		policy, key := entries[i].Spec.Duplicates()
		fresh[i] = newEntry{&entries[i], spec, policy, key}
	}
	if b.ID == "" {
		return errors.New("enqueue: the batch has no id")
	}
	err := s.write(ctx, func(t *tx) error { return t.enqueue(b, fresh) })
	if err != nil {
		return fmt.Errorf("enqueue %d jobs of batch %s: %w", len(entries), b.ID, err)
	}
	return nil
}

// prepare checks that e can be stored in batch and read back, and returns its
// encoded specification.
func prepare(batch job.BatchID, e *queue.Entry) (spec string, err error) {
	switch {
	case e.ID == "":
		return "", errors.New("it has no id")
	case e.Batch != "" && e.Batch != batch:
		return "", fmt.Errorf("it belongs to batch %s, not %s", e.Batch, batch)
	case e.State != "" && e.State != job.Queued:
		return "", fmt.Errorf("new entry in state %s: %w", e.State, queue.ErrIllegalTransition)
	}
	if p, _ := e.Spec.Duplicates(); p != job.RunEach && !slices.Contains(job.DuplicatePolicies(), p) {
		return "", fmt.Errorf("unknown policy %q for duplicates", p)
	}
	// A negative duration is written without complaint but cannot be read back.
	for _, d := range []job.Duration{e.Spec.Limits.Timeout, e.Spec.Limits.MaxCommandTime, e.Spec.Limits.RetryBudget.Time} {
		if d < 0 {
			return "", fmt.Errorf("a limit is negative: %s", d)
		}
	}
	return encode(&e.Spec)
}

func (t *tx) enqueue(b queue.Batch, entries []newEntry) error {
	if len(entries) > 1 || len(entries) == 1 && entries[0].policy != job.RunEach {
		if err := t.protect(); err != nil {
			return err
		}
	}
	batch, err := t.findBatch(b.ID)
	if errors.Is(err, queue.ErrNotFound) {
		batch, err = t.addBatch(b, entries)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		r := rank{waiting: e.Waiting}
		if e.policy != job.RunEach {
			if r, err = t.lineUp(e); err != nil {
				return err
			}
		}
		err := t.exec(`INSERT INTO entries (id, batch, tenant, name, priority, class, created_at, runnable_at, deadline,
				key, waits_for, coalesced_with, choice, session, session_worker, feedback, waiting, spec)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			string(e.ID), batch, string(e.Spec.Tenant), string(e.Spec.Name), e.Spec.Priority, string(e.Spec.Class.Or()),
			nanos(e.CreatedAt), nanos(e.RunnableAt), nanosOrNull(e.Deadline), e.key, string(r.waitsFor), string(r.coalescedWith),
			e.Choice, e.Session, string(e.SessionWorker), e.Feedback, r.waiting, e.spec)
		switch {
		case isUnique(err):
			return fmt.Errorf("job %s (%q of tenant %s): %w: %w", e.ID, e.Spec.Name, e.Spec.Tenant, queue.ErrDuplicate, err)
		case err != nil:
			return fmt.Errorf("job %s: %w", e.ID, err)
		}
	}
	return nil
}

// addBatch stores b. A single entry of a new batch can only fail by its id, so
// a look at that saves the savepoint.
func (t *tx) addBatch(b queue.Batch, entries []newEntry) (seq int64, err error) {
	if len(entries) == 1 {
		e := entries[0]
		_, found, err := t.number(`SELECT seq FROM entries WHERE id = ?`, []any{string(e.ID)})
		if err != nil {
			return 0, err
		}
		if found {
			return 0, fmt.Errorf("job %s (%q of tenant %s): %w", e.ID, e.Spec.Name, e.Spec.Tenant, queue.ErrDuplicate)
		}
	}
	err = t.returning(`INSERT INTO batches (id, source, digest, created_at, closed_at) VALUES (?, ?, ?, ?, ?) RETURNING seq`,
		[]any{string(b.ID), b.Source, b.Digest, nanos(b.CreatedAt), nanosOrNull(b.ClosedAt)}, &seq)
	return seq, err
}

func (t *tx) findBatch(id job.BatchID) (seq int64, err error) {
	err = t.row(`SELECT seq FROM batches WHERE id = ?`, []any{string(id)}, &seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("batch %s: %w", id, queue.ErrNotFound)
	}
	return seq, err
}

// closeBatch marks a batch as closed; one that is so already keeps its time.
func (t *tx) closeBatch(id job.BatchID, now time.Time) error {
	seq, err := t.findBatch(id)
	if err != nil {
		return err
	}
	return t.exec(`UPDATE batches SET closed_at = ? WHERE seq = ? AND closed_at IS NULL`, nanos(now), seq)
}
