package queuetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// memory is a store as naive as can be, written from the contract alone: the
// oracle that real stores are compared with. Each write works on a whole copy,
// which takes the place of the old one if it succeeds.
type memory struct {
	memoryState
	laneVersions
}

type memoryState struct {
	batches []queue.Batch
	records []*record // in the order of submission
	fence   job.Fence
	grants  []queue.Grant
	notes   []queue.Record // of the journal
}

type record struct {
	queue.Entry
	attempts []job.Attempt
	events   []job.Event
	stood    job.ID // what it waited for when it left its line

	succeeded *job.Attempt // by which it was completed as succeeded; nil: by none
}

func (s memoryState) clone() memoryState {
	s.batches, s.grants, s.notes = slices.Clone(s.batches), slices.Clone(s.grants), slices.Clone(s.notes)
	s.records = slices.Clone(s.records)
	for i, r := range s.records {
		s.records[i] = &record{r.Entry, slices.Clone(r.attempts), slices.Clone(r.events), r.stood, r.succeeded}
	}
	return s
}

// change does what write does, or nothing.
func (m *memory) change(write func(*memoryState) error) error {
	next := m.clone()
	err := write(&next)
	if err == nil {
		before := m.memoryState
		m.memoryState = next
		m.raise(&before)
	}
	return err
}

func (s *memoryState) find(id job.ID) (*record, error) {
	for _, r := range s.records {
		if r.ID == id {
			return r, nil
		}
	}
	return nil, queue.ErrNotFound
}

func (m *memory) enqueue(b queue.Batch, entries []queue.Entry) error {
	return m.change(func(s *memoryState) error { return s.enqueue(queue.Add{Batch: b, Entries: entries}) })
}

func (s *memoryState) enqueue(op queue.Add) error {
	b, entries := op.Batch, op.Entries
	if slices.ContainsFunc(entries, func(e queue.Entry) bool { return s.dead(e.Spec.Tenant, e.Spec.Agent) }) {
		return queue.ErrDeadOwner
	}
	if !slices.ContainsFunc(s.batches, func(x queue.Batch) bool { return x.ID == b.ID }) {
		s.batches = append(s.batches, b)
	}
	for _, e := range entries {
		if s.named(b.ID, &e) != nil {
			return queue.ErrDuplicate
		}
		if err := s.add(b.ID, e); err != nil {
			return err
		}
	}
	return nil
}

// named returns the entry of a batch that has the name and tenant of e.
func (s *memoryState) named(batch job.BatchID, e *queue.Entry) *record {
	for _, r := range s.records {
		if r.Batch == batch && r.Spec.Tenant == e.Spec.Tenant && r.Spec.Name == e.Spec.Name {
			return r
		}
	}
	return nil
}

func (s *memoryState) add(batch job.BatchID, e queue.Entry) error {
	if _, err := s.find(e.ID); err == nil {
		return queue.ErrDuplicate
	}
	e.Batch, e.State = batch, job.Queued
	waiting := e.Waiting
	if err := s.lineUp(&e); err != nil {
		return err
	}
	if e.Held != "" {
		e.Waiting = waiting
	}
	if err := s.requeue(&e); err != nil {
		return err
	}
	if err := s.goOn(&e); err != nil {
		return err
	}
	s.records = append(s.records, &record{Entry: e})
	return nil
}

func (m *memory) extend(fences []job.Fence, until time.Time) (lost []job.Fence) {
	for _, f := range fences {
		i := slices.IndexFunc(m.records, func(r *record) bool { return r.State == job.Dispatched && r.Fence == f })
		if i < 0 {
			lost = append(lost, f)
			continue
		}
		m.records[i].LeaseUntil = &until
	}
	return lost
}

func (m *memory) apply(ops ...queue.Op) error {
	err := m.change(func(s *memoryState) error {
		for _, op := range ops {
			if err := s.applyOne(op); err != nil {
				return err
			}
			s.closeGaps(timeOf(op))
		}
		return nil
	})
	for _, op := range ops {
		switch op.(type) {
		case queue.SetPrivate, queue.Adopt, queue.SetGrant:
			if err == nil {
				m.floor = m.version
			}
		}
	}
	return err
}

func (s *memoryState) applyOne(op queue.Op) error {
	switch op := op.(type) {
	case queue.Begin:
		return s.held(op.ID, op.Fence, func(r *record) error {
			if op.Attempt.Number != r.Attempts+1 || op.Attempt.State != job.Pending || r.open() != nil {
				return queue.ErrIllegalTransition
			}
			r.Attempts++
			r.Counted++
			a := op.Attempt
			a.Job, a.Fence, a.Outcome, a.Ended, a.Lost = op.ID, op.Fence, nil, nil, false
			r.attempts = append(r.attempts, a)
			return nil
		})
	case queue.Move:
		return s.held(op.ID, op.Fence, func(r *record) error { return r.move(op) })
	case queue.Append:
		for _, ev := range op.Events {
			r, err := s.find(ev.Job)
			if err != nil {
				return err
			}
			same := func(x job.Event) bool { return x.Attempt == ev.Attempt && x.Seq == ev.Seq }
			if !slices.ContainsFunc(r.events, same) {
				r.events = append(r.events, ev)
			}
		}
		return nil
	case queue.Finish:
		return s.held(op.ID, op.Fence, func(r *record) error { return r.finish(op) })
	case queue.Release:
		return s.held(op.ID, op.Fence, func(r *record) error {
			if r.open() != nil {
				return queue.ErrIllegalTransition
			}
			if r.SupersededBy != "" {
				r.ExitKind, r.CompletedAt = job.ExitCancelled, &op.Now
				return r.leave(job.Completed)
			}
			r.RunnableAt, r.Choice, r.Waiting = op.RunnableAt, op.Choice, op.Waiting
			return r.leave(job.Queued)
		})
	case queue.Cancel:
		r, err := s.find(op.ID)
		switch {
		case err != nil:
			return err
		case r.State == job.Dispatched:
			r.CancelRequested = true
			return nil
		}
		if err := r.State.CheckMove(job.Cancelled); err != nil {
			return err
		}
		r.withdraw(job.Cancelled, op.Now)
		return nil
	case queue.Reclaim:
		for _, r := range s.records {
			gone := op.Lapsed && r.LeaseUntil != nil && r.LeaseUntil.Before(op.Now) ||
				slices.Contains(op.Fences, r.Fence) ||
				slices.Contains(op.Holders, r.Holder) && r.Spec.Type != job.External
			if r.State == job.Dispatched && gone {
				r.lose(op)
			}
		}
		return nil
	case queue.Rebase:
		for _, r := range s.records {
			future := r.CreatedAt.After(op.Now) || r.DispatchedAt == nil || r.DispatchedAt.After(op.Now) ||
				slices.ContainsFunc(r.attempts, func(a job.Attempt) bool { return a.Ended != nil && a.Ended.After(op.Now) })
			asked := r.Spec.RunnableAt != nil && r.Spec.RunnableAt.After(op.Now)
			if r.State == job.Queued && r.RunnableAt.After(op.After) && !asked && (future || !op.Future) {
				r.RunnableAt = op.Now
			}
		}
		return nil
	case queue.Ready, queue.Keep, queue.Skip, queue.Spawn, queue.Add, queue.Conclude, queue.Await, queue.Decide, queue.Write, queue.Erase:
		return s.applyFlow(op)
	case queue.Drop:
		r, err := s.deadLetter(op.ID)
		if err == nil {
			r.DroppedAt = &op.Now
		}
		return err
	case queue.SetGrant:
		s.setGrant(op.Grant)
		return nil
	case queue.Adopt:
		for i := range s.batches {
			s.batches[i].Private = false
		}
		return nil
	case queue.SetPrivate:
		return s.setPrivate(op)
	case queue.CloseBatch:
		for i := range s.batches {
			if b := &s.batches[i]; b.ID == op.ID {
				b.ClosedAt = cmp.Or(b.ClosedAt, &op.Now)
				return nil
			}
		}
		return queue.ErrNotFound
	}
	return fmt.Errorf("unknown op %T", op)
}

func (s *memoryState) held(id job.ID, fence job.Fence, do func(*record) error) error {
	r, err := s.find(id)
	switch {
	case err != nil:
		return err
	case r.State != job.Dispatched || r.Fence != fence:
		return queue.ErrFenced
	}
	return do(r)
}

// open returns the attempt that has not ended, or nil.
func (r *record) open() *job.Attempt {
	for i := range r.attempts {
		if r.attempts[i].Ended == nil {
			return &r.attempts[i]
		}
	}
	return nil
}

func (r *record) move(op queue.Move) error {
	if op.Attempt < 1 || op.Attempt > len(r.attempts) {
		return queue.ErrNotFound
	}
	a := &r.attempts[op.Attempt-1]
	if a.Ended != nil || op.To.Terminal() {
		return queue.ErrIllegalTransition
	}
	if op.To != "" {
		if err := a.State.CheckMove(op.To); err != nil {
			return err
		}
		switch job.WaitingApproval {
		case op.To:
			r.Waiting = op.Waiting
		case a.State:
			r.Waiting = ""
		}
		a.State = op.To
	}
	if op.Session != "" {
		a.Session, r.Session, r.SessionWorker, r.SessionNode = op.Session, op.Session, a.Choice.Worker, a.Node
	}
	return nil
}

func (r *record) finish(op queue.Finish) error {
	if op.Exit != "" && op.Exit != job.ExitSucceeded && op.Exit != job.ExitFailed && op.Exit != job.ExitCancelled {
		return errors.New("unknown exit kind")
	}
	switch {
	case op.Attempt == 0 && r.open() != nil:
		return queue.ErrIllegalTransition
	case op.Attempt == 0:
		r.ErrorClass, r.succeeded = cmp.Or(op.Outcome.Class, r.ErrorClass), nil
	case op.Attempt < 1 || op.Attempt > len(r.attempts):
		return queue.ErrNotFound
	default:
		a := &r.attempts[op.Attempt-1]
		if !op.Outcome.State.Terminal() {
			return queue.ErrIllegalTransition
		}
		if err := a.State.CheckMove(op.Outcome.State); err != nil {
			return err
		}
		r.end(a, op.Outcome, op.Lost, op.Now)
		r.succeeded = a
	}
	if op.Exit == "" && r.SupersededBy != "" {
		op.Exit = job.ExitCancelled
	}
	if op.Exit == "" {
		t := op.Retry
		r.RunnableAt, r.Choice, r.Session, r.SessionWorker, r.SessionNode = t.RunnableAt, t.Choice, t.Session, t.SessionWorker, t.SessionNode
		r.Feedback, r.Waiting, r.Held = t.Feedback, t.Waiting, t.Hold
		return r.leave(job.Queued)
	}
	r.ExitKind, r.CompletedAt = op.Exit, &op.Now
	if op.Exit == job.ExitFailed {
		r.DeadLetter = op.DeadLetter
	}
	if op.Exit != job.ExitCancelled {
		r.Waiting = ""
	}
	return r.leave(job.Completed)
}

// end records how an attempt ended.
func (r *record) end(a *job.Attempt, o job.Outcome, lost bool, now time.Time) {
	started, ended := o.StartedAt, o.EndedAt
	if started.IsZero() {
		started = a.Started
	}
	if ended.IsZero() {
		ended = now
	}
	a.State, a.Outcome, a.Ended, a.Lost = o.State, &o, &ended, lost
	a.Session = cmp.Or(o.Session, a.Session)
	r.ErrorClass = o.Class
	r.Spent = r.Spent.Add(o.Usage)
	r.SpentTime += job.Duration(max(0, ended.Sub(started)-time.Duration(o.AskedMillis)*time.Millisecond))
	if lost {
		r.Counted--
	}
}

// lose takes the entry from a holder that is gone.
func (r *record) lose(op queue.Reclaim) {
	if a := r.open(); a != nil {
		ended := op.Now
		if r.LeaseUntil.Before(ended) {
			ended = *r.LeaseUntil
		}
		if ended.Before(a.Started) {
			ended = a.Started
		}
		o := job.Outcome{State: job.RunFailed, Class: job.Crash, Message: op.Message, Session: a.Session, ExitCode: -1, StartedAt: a.Started, EndedAt: ended}
		if r.CancelRequested {
			o.State, o.Class = job.RunCancelled, job.CancelledClass
		}
		for _, ev := range r.events {
			if ev.Attempt == a.Number && ev.Usage != nil {
				o.Usage = o.Usage.Add(*ev.Usage)
			}
		}
		if a.Session != "" && !r.CancelRequested {
			r.Session, r.SessionWorker, r.SessionNode = a.Session, a.Choice.Worker, a.Node
		}
		r.end(a, o, true, op.Now)
	}
	if r.CancelRequested {
		r.State, r.ExitKind, r.CompletedAt = job.Completed, job.ExitCancelled, &op.Now
	} else {
		r.State, r.Waiting = job.Queued, op.Message
		if r.RunnableAt.After(op.Now) {
			r.RunnableAt = op.Now
		}
	}
	r.Holder, r.LeaseUntil = "", nil
}

func (r *record) leave(to job.EntryState) error {
	if err := r.State.CheckMove(to); err != nil {
		return err
	}
	r.State, r.Holder, r.LeaseUntil = to, "", nil
	return nil
}

func (s *memoryState) setPrivate(op queue.SetPrivate) error {
	i := slices.IndexFunc(s.batches, func(b queue.Batch) bool { return b.ID == op.ID })
	if i < 0 {
		return queue.ErrNotFound
	}
	s.batches[i].Private = op.Private
	for _, r := range s.records {
		if r.Batch == op.ID && r.State == job.Queued && r.Held == "" && r.WaitsFor == "" && r.Spec.Type != job.External && op.Waiting != "" {
			r.Waiting = op.Waiting
		}
	}
	return nil
}
