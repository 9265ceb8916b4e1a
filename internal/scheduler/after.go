package scheduler

import (
	"context"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// after returns how an entry without a key stands when the op, which ends its
// claim, is stored: what the store would tell, without asking it. What is seen
// of the entry's times is left as it was.
func after(e queue.Entry, op queue.Op) queue.Entry {
	switch op := op.(type) {
	case queue.Release:
		e.State, e.RunnableAt, e.Choice, e.Waiting = job.Queued, op.RunnableAt, op.Choice, op.Waiting
	case queue.Await:
		e.Attempts = op.Attempt
		e.Spent = e.Spent.Add(op.Outcome.Usage)
		e.State, e.Held, e.Waiting = job.Queued, job.HeldForApproval, op.Waiting
		approval := op.Approval
		e.Approval = &approval
	case queue.Finish:
		if op.Attempt > 0 {
			e.Attempts = op.Attempt
			e.Spent = e.Spent.Add(op.Outcome.Usage)
		}
		if op.Exit == "" {
			e.State, e.RunnableAt, e.Choice, e.Waiting = job.Queued, op.Retry.RunnableAt, op.Retry.Choice, op.Retry.Waiting
			return e
		}
		e.State, e.ExitKind = job.Completed, op.Exit
		if op.Exit == job.ExitFailed {
			e.DeadLetter = op.DeadLetter
		}
		if op.Exit != job.ExitCancelled {
			e.Waiting = ""
		}
	}
	return e
}

// tell tells of the end of an attempt, by op, that has left the entry so, and
// finds what follows from it.
func (s *Scheduler) tell(e *queue.Entry, op queue.Op) {
	switch op := op.(type) {
	case queue.Finish:
		if op.Attempt > 0 {
			s.signal(e, api.AgentTerminated, "", string(op.Outcome.Class))
		}
		if op.Exit != "" {
			s.signalEnd(e)
			s.follow(e)
		}
	case queue.Await:
		s.signal(e, api.AgentTerminated, "", "")
		s.askPerson(e, &op.Outcome)
	}
}

// publishFollowers tells how the jobs stand that share the result of one that may
// have ended, and finds what follows from that.
func (s *Scheduler) publishFollowers(ctx context.Context, e *queue.Entry) {
	if e.Key == "" {
		return // no other is like it
	}
	followers, _, err := s.cfg.Store.List(context.WithoutCancel(ctx), queue.Filter{CoalescedWith: e.ID, Limit: 1 << 30})
	if err != nil {
		s.cfg.Log.Warn().Err(err).Str("job", string(e.ID)).Msg("look for jobs with the same result")
		return
	}
	for i := range followers {
		s.publishEntry(ctx, followers[i].ID)
	}
}
