package scheduler

import (
	"context"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/schedule"
)

// Drain lets what runs end, begins nothing, and returns when nothing runs; when ctx
// ends before that, work goes on as before. Jobs are taken all the while.
func (s *Scheduler) Drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.emptied.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.post(schedule.Draining)
	for len(s.live) > 0 && ctx.Err() == nil {
		s.emptied.Wait()
	}
	if err := context.Cause(ctx); err != nil {
		s.draining = false
		s.post(schedule.Starting)
		return err
	}
	return nil
}

// stopAll stops what runs; the jobs go back to the queue and no attempt counts.
func (s *Scheduler) stopAll(reason string) {
	s.mu.Lock()
	flights := make([]*flight, 0, len(s.live))
	for _, f := range s.live {
		flights = append(flights, f)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	for _, f := range flights {
		s.stopFlight(ctx, f, true, reason)
	}
}

// safeStop ends what runs, too, if the tuning says so.
func (s *Scheduler) safeStop(why string) {
	s.mu.Lock()
	stop := s.cfg.StopOnSafeStop
	s.mu.Unlock()
	if stop {
		s.drives.Go(func() { s.stopAll(why) })
	}
}

// park keeps a job that an isolation has refused out of the claims until that
// is lifted. It reports false if no isolation blocks the job.
func (s *Scheduler) park(f *flight) bool {
	if _, blocked := s.Isolations.Blocking(&f.entry); !blocked {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.parked = true
	return true
}

// forgetJob forgets what was noted of a job: it has ended.
func (s *Scheduler) forgetJob(id job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.late, id)
	delete(s.blocked, id)
	delete(s.lateStarts, id)
	s.post(schedule.Dropped{ID: id})
}
