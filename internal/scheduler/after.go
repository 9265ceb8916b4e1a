package scheduler

import (
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
			s.Feed.signal(e, api.AgentTerminated, "", string(op.Outcome.Class))
		}
		if op.Exit != "" {
			s.Feed.signalEnd(e)
			s.follow(e)
		}
	case queue.Await:
		s.Feed.signal(e, api.AgentTerminated, "", "")
		s.askPerson(e, &op.Outcome)
	}
}
