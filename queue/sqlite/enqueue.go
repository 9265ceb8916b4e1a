package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	add, err := newAdding(queue.Add{Batch: b, Entries: entries})
	if err != nil {
		return fmt.Errorf("enqueue %w", err)
	}
	if s.writer != nil {
		if b := s.writer.tx.room.bounds.Load(); b != nil {
			if err := b.CheckSubmission(len(entries)); err != nil {
				return err
			}
		}
	}
	if err := s.write(ctx, func(t *tx) error { return t.enqueue(add) }); err != nil {
		return fmt.Errorf("enqueue %d jobs of batch %s: %w", len(entries), b.ID, err)
	}
	s.writer.leases.expires(entries)
	return nil
}

// adding is a queue.Add whose entries are ready to be stored.
type adding struct {
	queue.Add
	workflow string // as it is stored, "" is none
	fresh    []newEntry
}

func newAdding(op queue.Add) (a adding, err error) {
	a = adding{Add: op, fresh: make([]newEntry, len(op.Entries))}
	for i := range op.Entries {
		e := &op.Entries[i]
		if a.fresh[i], err = prepare(op.Batch.ID, e); err != nil {
			return a, fmt.Errorf("job %s (%q): %w", e.ID, e.Spec.Name, err)
		}
	}
	if op.Batch.ID == "" {
		return a, errors.New("jobs: the batch has no id")
	}
	if a.workflow, err = encode(&op.Batch.Workflow); err != nil {
		return a, fmt.Errorf("batch %s: %w", op.Batch.ID, err)
	}
	if a.workflow == "{}" {
		a.workflow = ""
	}
	return a, nil
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

func (t *tx) enqueue(op adding) error {
	entries := op.fresh
	if err := t.accounts.refuseDead(entries); err != nil {
		return err
	}
	if err := t.room.take(entries); err != nil {
		return err
	}
	if len(entries) > 1 || len(entries) == 1 && (entries[0].policy != job.RunEach || entries[0].RequeuedFrom != "" || entries[0].Continues != "") {
		if err := t.protect(); err != nil {
			return err
		}
	}
	batch, pool, err := t.batches.poolOf(op.Batch.ID)
	if errors.Is(err, queue.ErrNotFound) {
		batch, pool, err = t.batches.add(op.Batch, op.workflow, entries)
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
		if r, err = (line{t, e.Spec.Tenant, e.key}).lineUp(e); err != nil {
			return err
		}
	}
	if e.Spec.Type == job.External {
		pool = externalPool
	}
	if e.Held != "" {
		pool, r.waiting = heldPool(pool), e.Waiting
	}
	seq, err := t.insert(`INSERT INTO entries (id, batch, pool, tenant, name, priority, class, created_at, runnable_at, deadline,
			key, waits_for, coalesced_with, choice, session, session_worker, session_node, feedback, waiting, agent, requeued_from, held,
			joined, worker, continues, folder, forked_from)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		string(e.ID), batch, pool, string(e.Spec.Tenant), string(e.Spec.Name), e.Spec.Priority, classOf(e.Spec.Class),
		e.CreatedAt, e.RunnableAt, e.Deadline, e.key, string(r.waitsFor), string(r.coalescedWith),
		e.Choice, e.Session, string(e.SessionWorker), e.SessionNode, e.Feedback, r.waiting,
		string(e.Spec.Agent), string(e.RequeuedFrom), string(e.Held), e.Spec.Flow.Joined, string(e.Spec.Worker),
		string(e.Continues), string(e.Folder), string(e.ForkedFrom))
	switch {
	case isUnique(err):
		same := "name in its batch"
		if _, found, err := t.number(`SELECT 1 FROM entries WHERE id = ?`, string(e.ID)); err != nil {
			return fmt.Errorf("job %s: %w", e.ID, err)
		} else if found {
			same = "id"
		}
		return fmt.Errorf("job %s (%q of tenant %s): %w: another job has the same %s", e.ID, e.Spec.Name, e.Spec.Tenant, queue.ErrDuplicate, same)
	case err != nil:
		return fmt.Errorf("job %s: %w", e.ID, err)
	}
	if err := t.exec(`INSERT INTO specs (entry, spec) VALUES (?, ?)`, seq, e.spec); err != nil {
		return fmt.Errorf("specification of job %s: %w", e.ID, err)
	}
	if e.flow != "" {
		if err := t.exec(`INSERT INTO flows (entry, flow) VALUES (?, ?)`, seq, e.flow); err != nil {
			return fmt.Errorf("job %s: %w", e.ID, err)
		}
	}
	if e.RequeuedFrom != "" {
		if err := (deadLetter{t, e.RequeuedFrom}).requeuedAs(e.ID); err != nil {
			return fmt.Errorf("job %s: %w", e.ID, err)
		}
	}
	if e.Continues != "" {
		if err := t.continueAs(e.Continues, e.ID); err != nil {
			return fmt.Errorf("job %s: %w", e.ID, err)
		}
	}
	return nil
}

// continueAs marks an entry that has ended as one that another goes on from.
func (t *tx) continueAs(id, by job.ID) error {
	n, err := t.change(`UPDATE entries SET continued_as = ?, requeued_as = CASE WHEN `+isDeadLetter+` THEN ? ELSE requeued_as END
		WHERE id = ? AND continued_as = '' AND completed_at IS NOT NULL`, string(by), string(by), string(id))
	if err != nil || n == 1 {
		return err
	}
	e, err := t.standing(id)
	if err != nil {
		return err
	}
	if !e.state.Terminal() {
		return fmt.Errorf("job %s is %s, and has not ended: %w", id, e.state, queue.ErrIllegalTransition)
	}
	return fmt.Errorf("another job goes on from job %s already: %w", id, queue.ErrIllegalTransition)
}

// classOf returns what is stored of a class: nothing of the usual one.
func classOf(c job.Class) string {
	if c.Or() == job.Standard {
		return ""
	}
	return string(c)
}
