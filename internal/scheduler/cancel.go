package scheduler

import (
	"context"
	"fmt"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Cancel withdraws a job: a queued one at once; the worker of a running one is
// stopped, and its end is recorded as cancelled. The error wraps
// queue.ErrNotFound, or queue.ErrIllegalTransition if the job has ended.
func (s *Scheduler) Cancel(ctx context.Context, id job.ID) error {
	if err := s.cfg.Store.Apply(ctx, queue.Cancel{ID: id, Now: now()}); err != nil {
		return fmt.Errorf("cancel job %s: %w", id, err)
	}
	s.mu.Lock()
	f := s.live[id]
	if f != nil {
		f.cancelled = true
	}
	s.mu.Unlock()
	if f != nil {
		s.stopFlight(ctx, f)
	}
	s.publishEntry(ctx, id)
	s.poke()
	return nil
}

// stopFlight asks the core to stop the run. A core that cannot be asked is dead
// or about to be: the flight then ends with it, as cancelled.
func (s *Scheduler) stopFlight(ctx context.Context, f *flight) {
	err := f.core.Call(ctx, ipc.MethodCancelJob, ipc.CancelJob{
		Job: f.entry.ID, Attempt: f.attempt, Class: job.CancelledClass, Reason: "cancelled by the user",
	}, nil)
	if err != nil {
		s.cfg.Log.Debug().Err(err).Str("job", string(f.entry.ID)).Msg("ask the core to cancel")
	}
}

// cancelLate stops a run whose cancellation was asked for between the last
// look and its submission.
func (s *Scheduler) cancelLate(f *flight) {
	if s.isCancelled(f) {
		ctx, cancel := context.WithTimeout(context.Background(), writeTime)
		defer cancel()
		s.stopFlight(ctx, f)
	}
}

func (s *Scheduler) isCancelled(f *flight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.cancelled
}

func (s *Scheduler) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// CorePID returns the process id of the core that is up, or 0.
func (s *Scheduler) CorePID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil {
		return 0
	}
	return s.core.PID()
}
