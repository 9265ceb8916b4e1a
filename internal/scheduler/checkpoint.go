package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// checkpointTime is how long a run that was asked to stop at a step's boundary may
// take to get there when the scheduler ends.
const checkpointTime = 30 * time.Second

// Checkpoint asks a job that runs to stop at the boundary of its next step, and to
// go on from there when it is claimed again. It reports whether its worker can: one
// that keeps no steps, or does not run yet, was not asked. The error wraps
// queue.ErrIllegalTransition if the job does not run.
func (s *Scheduler) Checkpoint(ctx context.Context, id job.ID, reason string) (asked bool, err error) {
	s.mu.Lock()
	f := s.live[id]
	s.mu.Unlock()
	if f == nil {
		return false, queue.Refuse("job %s does not run", id)
	}
	return s.checkpoint(ctx, f, reason)
}

func (s *Scheduler) checkpoint(ctx context.Context, f *flight, reason string) (bool, error) {
	if f.core == nil {
		return false, nil
	}
	var answer ipc.CheckpointResult
	err := f.core.Call(ctx, ipc.MethodCheckpointJob, ipc.CheckpointJob{Job: f.entry.ID, Attempt: f.attempt, Reason: reason}, &answer)
	if err != nil {
		return false, fmt.Errorf("ask job %s for a checkpoint: %w", f.entry.ID, err)
	}
	if answer.Asked {
		s.cfg.Log.Info().Str("job", string(f.entry.ID)).Str("reason", reason).Msg("asked for a checkpoint")
	}
	return answer.Asked, nil
}

// checkpointed gives a job back whose run has stopped at a step's boundary: it
// goes on from there, in its place of the line, with all that it was told.
func (s *Scheduler) checkpointed(f *flight, op queue.Finish, touched bool) queue.Op {
	s.mu.Lock()
	f.checkpointed = true
	s.mu.Unlock()
	// The attempt is over, though nothing was wrong with it.
	op.Outcome.State, op.Outcome.Class, op.Outcome.Checkpointed = job.RunCancelled, job.NoError, true
	op.Lost = true
	session, worker := f.goesOnWith(op.Outcome.Session, touched)
	op.Retry = queue.Retry{
		RunnableAt: f.entry.RunnableAt, Choice: f.entry.Choice, Session: session, SessionWorker: worker,
		Feedback: f.entry.Feedback, Waiting: job.Waiting{Reason: job.WaitTurn, Text: queue.CheckpointedText + op.Outcome.Message + "); goes on from its last step"}.String(),
	}
	return op
}

// checkpointAll asks every run for a checkpoint, since the scheduler is about to
// end, and gives those that can time to get there, unless Hurry is called.
func (s *Scheduler) checkpointAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkpointTime)
	defer cancel()
	s.mu.Lock()
	flights := make([]*flight, 0, len(s.live))
	for _, f := range s.live {
		flights = append(flights, f)
	}
	s.mu.Unlock()
	var asking sync.WaitGroup
	for _, f := range flights {
		asking.Go(func() {
			call, end := context.WithTimeout(ctx, askTime)
			defer end()
			if asked, err := s.checkpoint(call, f, "the scheduler is about to end"); err != nil || !asked {
				return
			}
			select {
			case <-f.landed:
			case <-s.hurried:
			case <-ctx.Done():
			}
		})
	}
	asking.Wait()
}

// askTime is how long a core may take to say whether a worker can stop.
const askTime = 2 * time.Second
