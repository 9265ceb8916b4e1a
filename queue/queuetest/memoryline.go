package queuetest

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// lineUp does what the policy of a new entry says about the unfinished entries
// of its key.
func (s *memoryState) lineUp(e *queue.Entry) error {
	var policy job.DuplicatePolicy
	if policy, e.Key = e.Spec.Duplicates(); policy == job.RunEach {
		return nil
	}
	var last *record
	for _, r := range s.records {
		if r.State.Terminal() || r.Spec.Tenant != e.Spec.Tenant || r.Key != e.Key {
			continue
		}
		if policy == job.Reject {
			return queue.ErrDuplicate
		}
		if policy == job.LatestWins {
			queued := r.State == job.Queued
			if queued {
				r.withdraw(job.Cancelled, e.CreatedAt)
			}
			if r.SupersededBy == "" {
				r.SupersededBy, r.Waiting = e.ID, queue.Superseded(e.ID, e.Spec.Name, e.Key)
			}
			if queued {
				continue
			}
			r.CancelRequested = true
		}
		if r.CoalescedWith == "" {
			last = r
		}
	}
	if last != nil {
		e.WaitsFor, e.Waiting = last.ID, queue.WaitingFor(last.ID, last.Spec.Name, e.Key)
		if policy == job.Coalesce {
			e.CoalescedWith = last.ID
		}
	}
	return nil
}

// withdraw ends a queued entry.
func (r *record) withdraw(to job.EntryState, now time.Time) {
	r.State, r.CompletedAt = to, &now
	if r.WaitsFor != "" || r.Held != "" {
		r.Waiting = ""
	}
	if r.Held == job.HeldForApproval {
		r.settle(job.RunCancelled, job.CancelledClass, "")
	}
	r.Held = ""
	r.stood, r.WaitsFor, r.CoalescedWith = r.WaitsFor, "", ""
}

// closeGaps looks, until there is none, for an entry that waits for one that
// has ended, the first submitted first.
func (s *memoryState) closeGaps(now time.Time) {
	for i := 0; i < len(s.records); i++ {
		r := s.records[i]
		if r.WaitsFor == "" {
			continue
		}
		gone, err := s.find(r.WaitsFor)
		if err != nil || !gone.State.Terminal() {
			continue
		}
		coalesced := r.CoalescedWith == gone.ID
		if coalesced && gone.State == job.Completed && gone.ExitKind != job.ExitCancelled {
			r.State, r.ExitKind, r.DeadLetter, r.CompletedAt = job.Completed, gone.ExitKind, gone.DeadLetter, &now
			r.ErrorClass = gone.ErrorClass
			r.WaitsFor, r.Waiting, r.Held = "", "", ""
			continue
		}
		s.stand(r, gone.stood, now)
		if coalesced {
			r.CoalescedWith = ""
			for _, other := range s.records {
				if other.WaitsFor == gone.ID {
					s.stand(other, r.ID, now)
				}
				if other.CoalescedWith == gone.ID && !other.State.Terminal() {
					other.CoalescedWith = r.ID
				}
				if other.stood == gone.ID { // it has gone too, and its heir comes to stand behind r
					other.stood = r.ID
				}
			}
		}
		i = -1
	}
}

// stand lets r wait for the entry of that id, or for none.
func (s *memoryState) stand(r *record, id job.ID, now time.Time) {
	r.WaitsFor = id
	if r.Held == "" {
		r.Waiting = s.waitingInLine(r)
	}
	if id == "" && r.RunnableAt.Before(now) {
		r.RunnableAt = now
	}
}

// waitingInLine says what r waits for in the line of its key.
func (s *memoryState) waitingInLine(r *record) string {
	front, err := s.find(r.WaitsFor)
	if err != nil {
		return ""
	}
	return queue.WaitingFor(front.ID, front.Spec.Name, r.Key)
}

// started reports whether r gets the result of an entry that was started.
func (s *memoryState) started(r *record) bool {
	leader, err := s.find(r.CoalescedWith)
	return err == nil && (leader.State == job.Dispatched || leader.Held == job.HeldForApproval)
}

// heads returns what must end first of all that the batch's entries wait for.
func (s *memoryState) heads(batch job.BatchID) map[job.ID]bool {
	heads := map[job.ID]bool{}
	for _, r := range s.records {
		if s.poolOf(r) != batch || r.WaitsFor == "" || r.Held != "" {
			continue
		}
		for r.WaitsFor != "" {
			r, _ = s.find(r.WaitsFor)
		}
		heads[r.ID] = true
	}
	return heads
}

// attemptsOf returns the attempts of r, or of the one whose result it gets.
func (s *memoryState) attemptsOf(r *record) []job.Attempt {
	if leader, err := s.find(r.CoalescedWith); err == nil {
		return leader.attempts
	}
	return r.attempts
}

// timeOf returns when an op happens.
func timeOf(op queue.Op) time.Time {
	switch op := op.(type) {
	case queue.Finish:
		return op.Now
	case queue.Release:
		return op.Now
	case queue.Cancel:
		return op.Now
	case queue.Reclaim:
		return op.Now
	case queue.Skip:
		return op.Now
	case queue.Conclude:
		return op.Now
	case queue.Await:
		return op.Now
	case queue.Decide:
		return op.Now
	}
	return time.Time{}
}
