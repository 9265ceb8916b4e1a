package scheduler

import (
	"context"
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
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
	s.stopJob(id, reason)
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
		s.stopJob(ids[i], "cancelled by the user")
	}
	for _, id := range ids {
		s.Feed.publishEntry(ctx, id)
	}
	s.poke()
	return ids, nil
}

// stopJob stops the run of a job whose cancellation the store knows of.
func (s *Scheduler) stopJob(id job.ID, reason string) {
	s.loop.post(schedule.Stop{Job: id, How: schedule.Withdraw, Reason: reason})
}

// Checkpoint asks a job that runs to stop at the boundary of its next step, and to
// go on from there when it is claimed again. It reports whether its worker can: one
// that keeps no steps, or does not run yet, was not asked. The error wraps
// queue.ErrIllegalTransition if the job does not run.
func (s *Scheduler) Checkpoint(ctx context.Context, id job.ID, reason string) (asked bool, err error) {
	r := s.loop.run(id)
	switch {
	case r == nil:
		return false, queue.Refuse("job %s does not run", id)
	case r.Core == 0:
		return false, nil
	}
	return s.applier.checkpoint(ctx, r, reason)
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
		path, _ := s.folders.Peek(e.Spec.Workspace.Path)
		s.fleet.noteLatestWins(path)
		s.stopJob(e.ID, "superseded by a newer job with the same key")
	}
	return nil
}
