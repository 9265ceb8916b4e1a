package scheduler

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Signal names a moment in an agent's life, in the stream of updates.
type Signal string

// The signals. Each carries the job, its name, tenant, batch, agent, worker,
// attempt and trace; Step names the step that it is about, Text says more.
const (
	JobAssigned       Signal = "job_assigned"       // an attempt has its permit
	AgentStarted      Signal = "agent_started"      // its worker runs
	StepCompleted     Signal = "step_completed"     // a step's result is on disk
	StepReplayed      Signal = "step_replayed"      // a step was answered from the store
	StepFailed        Signal = "step_failed"        // a step was refused
	ApprovalRequested Signal = "approval_requested" // a person has to look
	CheckpointCreated Signal = "checkpoint_created" // the run stopped at a step's boundary
	AgentTerminated   Signal = "agent_terminated"   // nothing of the attempt's processes is left
	AgentCancelled    Signal = "agent_cancelled"    // the job was cancelled
	JobCompleted      Signal = "job_completed"      // the job has ended, well or not
)

// signal tells whoever watches of a moment in the life of a job's agent.
func (s *Scheduler) signal(e *queue.Entry, which Signal, step, text string) {
	choices := e.Spec.Choices()
	s.hub.publish(Update{
		Kind: UpdateSignal, Signal: which, Step: step, Text: text, Time: now(),
		Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Batch: e.Batch, Agent: e.Spec.Agent,
		Worker: choices[min(e.Choice, len(choices)-1)].Worker, Attempt: e.Attempts, Trace: e.Spec.Trace,
	})
}

// signalEnd tells that a job has ended, and has it evaluated.
func (s *Scheduler) signalEnd(e *queue.Entry) {
	s.judge(e)
	if e.State == job.Cancelled || e.ExitKind == job.ExitCancelled {
		s.signal(e, AgentCancelled, "", e.Waiting)
		return
	}
	s.signal(e, JobCompleted, "", e.DeadLetter)
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
		s.signal(&e, AgentTerminated, "", "the scheduler ended while it ran")
	}
}
