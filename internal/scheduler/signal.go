package scheduler

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// signal tells whoever watches of a moment in the life of a job's agent.
func (s *Scheduler) signal(e *queue.Entry, which api.Signal, step, text string) {
	choices := e.Spec.Choices()
	s.hub.publish(api.Update{
		Kind: api.UpdateSignal, Signal: which, Step: step, Text: text, Time: now(),
		Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Batch: e.Batch, Agent: e.Spec.Agent,
		Worker: choices[min(e.Choice, len(choices)-1)].Worker, Attempt: e.Attempts, Trace: e.Spec.Trace,
	})
}

// signalEnd tells that a job has ended, and has it evaluated.
func (s *Scheduler) signalEnd(e *queue.Entry) {
	s.judge(e)
	if e.State == job.Cancelled || e.ExitKind == job.ExitCancelled {
		s.signal(e, api.AgentCancelled, "", e.Waiting)
		return
	}
	s.signal(e, api.JobCompleted, "", e.DeadLetter)
}

// signalReclaimed tells that the attempt of a job is over that was open when the
// job was taken back.
func (s *Scheduler) signalReclaimed(ctx context.Context, id job.ID, at time.Time) {
	attempts, err := s.cfg.Store.Attempts(ctx, id)
	if err != nil || len(attempts) == 0 {
		return
	}
	if last := &attempts[len(attempts)-1]; last.Ended == nil || last.Ended.Before(at) {
		return // it had ended before
	}
	if e, err := s.cfg.Store.Get(ctx, id); err == nil {
		s.signal(&e, api.AgentTerminated, "", "the scheduler ended while it ran")
	}
}
