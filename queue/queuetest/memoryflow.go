package queuetest

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// applyFlow applies the ops of workflows.
func (s *memoryState) applyFlow(op queue.Op) error {
	switch op := op.(type) {
	case queue.Ready:
		return s.heldFor(op.ID, []job.Hold{job.HeldForNeeds, job.HeldForTeam, job.HeldForWords, job.HeldByPerson}, func(r *record) error {
			r.Held, r.Resolved = "", cmp.Or(op.Resolved, r.Resolved)
			r.Waiting = s.waitingInLine(r)
			if r.RunnableAt.Before(op.Now) {
				r.RunnableAt = op.Now
			}
			return nil
		})
	case queue.Keep:
		return s.heldFor(op.ID, []job.Hold{"", job.HeldForNeeds, job.HeldForParts, job.HeldForTeam, job.HeldForWords, job.HeldByPerson}, func(r *record) error {
			if op.For == job.HeldForApproval {
				return queue.ErrIllegalTransition
			}
			r.Held, r.Waiting = op.For, op.Waiting
			return nil
		})
	case queue.Skip:
		r, err := s.find(op.ID)
		if err == nil {
			err = r.State.CheckMove(job.Cancelled)
		}
		if err == nil {
			r.withdraw(job.Cancelled, op.Now)
			r.Skipped = op.Why
		}
		return err
	case queue.Spawn:
		return s.spawn(op)
	case queue.Add:
		return s.enqueue(op)
	case queue.Conclude:
		return s.heldFor(op.ID, []job.Hold{job.HeldForParts, job.HeldForTeam}, func(r *record) error { return r.conclude(op) })
	case queue.Await:
		return s.held(op.ID, op.Fence, func(r *record) error { return r.await(op) })
	case queue.Decide:
		return s.heldFor(op.ID, []job.Hold{job.HeldForApproval}, func(r *record) error { return r.decide(op) })
	case queue.Write:
		return s.write(op)
	case queue.Erase:
		s.notes = slices.DeleteFunc(s.notes, func(n queue.Record) bool { return n.Space == op.Space && n.Key <= op.UpTo })
	}
	return nil
}

func (s *memoryState) heldFor(id job.ID, holds []job.Hold, do func(*record) error) error {
	r, err := s.find(id)
	switch {
	case err != nil:
		return err
	case r.State != job.Queued || !slices.Contains(holds, r.Held):
		return queue.ErrIllegalTransition
	}
	return do(r)
}

func (s *memoryState) spawn(op queue.Spawn) error {
	if !slices.ContainsFunc(s.batches, func(b queue.Batch) bool { return b.ID == op.Batch }) {
		return queue.ErrNotFound
	}
	for _, e := range op.Entries {
		if s.named(op.Batch, &e) != nil {
			continue
		}
		if s.dead(e.Spec.Tenant, e.Spec.Agent) {
			return queue.ErrDeadOwner
		}
		if err := s.add(op.Batch, e); err != nil {
			return err
		}
	}
	return nil
}

// conclude completes r, which is held: it may still have waited in its line.
func (r *record) conclude(op queue.Conclude) error {
	r.succeeded = nil
	switch op.Exit {
	case job.ExitSucceeded:
		r.ErrorClass, r.Result = job.NoError, op.Result
	case job.ExitFailed:
		r.ErrorClass, r.DeadLetter = cmp.Or(op.Class, r.ErrorClass), op.DeadLetter
	case job.ExitCancelled:
	default:
		return errors.New("unknown exit kind")
	}
	r.ExitKind, r.CompletedAt = op.Exit, &op.Now
	return r.through()
}

// through takes r from where it is held through Dispatched to Completed.
func (r *record) through() error {
	r.stood, r.WaitsFor, r.CoalescedWith = r.WaitsFor, "", ""
	r.Held, r.Waiting = "", ""
	if err := r.leave(job.Dispatched); err != nil {
		return err
	}
	return r.leave(job.Completed)
}

func (r *record) await(op queue.Await) error {
	if op.Attempt < 1 || op.Attempt > len(r.attempts) {
		return queue.ErrNotFound
	}
	a := &r.attempts[op.Attempt-1]
	if err := a.State.CheckMove(job.WaitingApproval); err != nil || !op.Outcome.State.Terminal() {
		return queue.ErrIllegalTransition
	}
	r.end(a, op.Outcome, false, op.Now)
	r.succeeded = a
	if r.CancelRequested {
		r.ExitKind, r.CompletedAt = job.ExitCancelled, &op.Now
		return r.leave(job.Completed)
	}
	a.State = job.WaitingApproval
	r.Held, r.Waiting = job.HeldForApproval, op.Waiting
	asked := op.Approval
	asked.Attempt = op.Attempt
	r.Approval = &asked
	return r.leave(job.Queued)
}

func (r *record) decide(op queue.Decide) error {
	if r.Approval.Attempt != op.Attempt {
		return queue.ErrIllegalTransition
	}
	said := *r.Approval
	said.Approved, said.DecidedAt, said.By, said.Comment = op.Approved, &op.Now, op.By, op.Comment
	r.Approval = &said
	if op.Approved {
		r.settle(job.RunCompleted, job.NoError, "")
		r.ExitKind, r.CompletedAt = job.ExitSucceeded, &op.Now
		return r.through()
	}
	r.settle(job.RunFailed, job.HumanRejected, op.Comment)
	r.Rejections++
	if t := op.Retry; t != nil {
		r.Held = ""
		r.RunnableAt, r.Choice, r.Session, r.SessionWorker, r.SessionNode = t.RunnableAt, t.Choice, t.Session, t.SessionWorker, t.SessionNode
		r.Feedback, r.Waiting = t.Feedback, t.Waiting
		return nil
	}
	r.ExitKind, r.DeadLetter, r.CompletedAt = job.ExitFailed, op.DeadLetter, &op.Now
	return r.through()
}

// settle ends the attempt that waited for a person.
func (r *record) settle(to job.RunState, class job.ErrorClass, message string) {
	a := &r.attempts[len(r.attempts)-1]
	o := *a.Outcome
	o.State, o.Class, o.Message = to, class, cmp.Or(message, o.Message)
	a.State, a.Outcome, r.ErrorClass = to, &o, class
}

func (s *memoryState) write(op queue.Write) error {
	at, there := slices.BinarySearchFunc(s.notes, op.Record, func(a, b queue.Record) int {
		return cmp.Or(strings.Compare(a.Space, b.Space), strings.Compare(a.Key, b.Key))
	})
	switch {
	case !there:
		s.notes = slices.Insert(s.notes, at, op.Record)
	case !op.Once:
		s.notes[at] = op.Record
	case string(s.notes[at].Value) != string(op.Record.Value):
		return queue.ErrExists
	}
	return nil
}
