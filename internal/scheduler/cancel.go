package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Cancel withdraws a job: a queued one at once; the worker of a running one is
// stopped, and its end is recorded as cancelled. The error wraps
// queue.ErrNotFound, or queue.ErrIllegalTransition if the job has ended.
func (s *Scheduler) Cancel(ctx context.Context, id job.ID) error {
	return s.cancel(ctx, id, "cancelled by the user")
}

func (s *Scheduler) cancel(ctx context.Context, id job.ID, reason string) error {
	if err := s.cfg.Store.Apply(ctx, queue.Cancel{ID: id, Now: now()}); err != nil {
		return fmt.Errorf("cancel job %s: %w", id, err)
	}
	s.stopJob(ctx, id, reason)
	s.Feed.publishEntry(ctx, id)
	s.poke()
	return nil
}

// CancelKey withdraws the unfinished jobs of a tenant that have a key, as Cancel
// does, all or none, and returns their ids. The error wraps queue.ErrNotFound if
// there are none.
func (s *Scheduler) CancelKey(ctx context.Context, tenant job.Tenant, key string) ([]job.ID, error) {
	list, err := queue.CancelKey(ctx, s.cfg.Store, tenant, key, now())
	if err != nil {
		return nil, fmt.Errorf("cancel by key: %w", err)
	}
	ids := make([]job.ID, len(list))
	for i := range list {
		ids[i] = list[i].ID
		s.stopJob(ctx, ids[i], "cancelled by the user")
	}
	for _, id := range ids {
		s.Feed.publishEntry(ctx, id)
	}
	s.poke()
	return ids, nil
}

// stopJob stops the flight of a job whose cancellation the store knows of. One
// that was claimed and is not in the air yet is stopped when it is.
func (s *Scheduler) stopJob(ctx context.Context, id job.ID, reason string) {
	s.mu.Lock()
	f := s.live[id]
	if f != nil {
		f.cancelled = true
	}
	s.mu.Unlock()
	if f != nil {
		s.stopFlight(ctx, f, false, reason)
		return
	}
	if e, err := s.cfg.Store.Get(ctx, id); err != nil || e.State != job.Dispatched || e.Spec.Type == job.External {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.live[id]; f != nil {
		f.cancelled = true // its submission is followed by a look at this
		return
	}
	s.late[id] = true
}

// stopFlight asks the core to stop the run, whose attempt does not count if it
// is lost. A core that cannot be asked is dead
// or about to be: the flight then ends with it.
func (s *Scheduler) stopFlight(ctx context.Context, f *flight, lost bool, reason string) {
	s.cancelRun(ctx, f, ipc.CancelJob{Class: job.CancelledClass, Reason: reason, Lost: lost})
}

func (s *Scheduler) cancelRun(ctx context.Context, f *flight, how ipc.CancelJob) {
	if f.core == nil {
		return
	}
	s.mu.Lock()
	stream := f.stream
	s.mu.Unlock()
	stream.stop(errors.New(how.Reason)) // what its worker has then is not to blame
	how.Job, how.Attempt = f.entry.ID, f.attempt
	if err := f.core.Call(ctx, ipc.MethodCancelJob, how, nil); err != nil {
		s.cfg.Log.Debug().Err(err).Str("job", string(f.entry.ID)).Msg("ask the core to cancel")
	}
}

// cancelLate stops a run whose cancellation was asked for between the last
// look and its submission.
func (s *Scheduler) cancelLate(f *flight) {
	if s.isCancelled(f) {
		ctx, cancel := context.WithTimeout(context.Background(), writeTime)
		defer cancel()
		s.stopFlight(ctx, f, false, "cancelled by the user")
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

// CorePID returns the process id of a core that is up, or 0.
func (s *Scheduler) CorePID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.cores {
		return c.PID()
	}
	return 0
}

// supersede stops the runs that a new job takes the place of, and tells of the
// queued jobs that the store has cancelled for it.
func (s *Scheduler) supersede(ctx context.Context, id job.ID) error {
	old, _, err := s.cfg.Store.List(ctx, queue.Filter{SupersededBy: id, Limit: 1 << 30})
	if err != nil {
		return err
	}
	for i := range old {
		e := &old[i]
		s.Feed.publishEntry(ctx, e.ID)
		if e.State != job.Dispatched {
			continue
		}
		s.mu.Lock()
		if m := s.first(); m != nil {
			path, _ := s.folders.Peek(e.Spec.Workspace.Path)
			m.latestWins = append(m.latestWins, path)
		}
		s.mu.Unlock()
		s.stopJob(ctx, e.ID, "superseded by a newer job with the same key")
	}
	return nil
}
