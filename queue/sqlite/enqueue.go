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
		if b := s.writer.tx.room.bounds.Load(); b != nil {
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
	if err := t.accounts.refuseDead(entries); err != nil {
		return err
	}
	if err := t.room.take(entries); err != nil {
		return err
	}
	if len(entries) > 1 || len(entries) == 1 && (entries[0].policy != job.RunEach || entries[0].RequeuedFrom != "") {
		if err := t.protect(); err != nil {
			return err
		}
	}
	batch, pool, err := t.batches.poolOf(b.ID)
	if errors.Is(err, queue.ErrNotFound) {
		batch, pool, err = t.batches.add(b, workflow, entries)
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
			joined, worker)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		string(e.ID), batch, pool, string(e.Spec.Tenant), string(e.Spec.Name), e.Spec.Priority, classOf(e.Spec.Class),
		e.CreatedAt, e.RunnableAt, e.Deadline, e.key, string(r.waitsFor), string(r.coalescedWith),
		e.Choice, e.Session, string(e.SessionWorker), e.SessionNode, e.Feedback, r.waiting,
		string(e.Spec.Agent), string(e.RequeuedFrom), string(e.Held), e.Spec.Flow.Joined, string(e.Spec.Worker))
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
	return nil
}

// classOf returns what is stored of a class: nothing of the usual one.
func classOf(c job.Class) string {
	if c.Or() == job.Standard {
		return ""
	}
	return string(c)
}
