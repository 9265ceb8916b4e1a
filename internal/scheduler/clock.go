package scheduler

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/queue"
)

// now is the time as it is stored: UTC, without a monotonic part.
func now() time.Time { return time.Now().UTC().Round(0) }

// clockWatch notices that the wall clock was set.
type clockWatch struct {
	last  time.Duration // how far ahead of where it began it stood at the last look
	ahead time.Duration // the furthest since then
}

// note takes how far ahead the clock stands: times are being written down by it.
func (w *clockWatch) note(stands time.Duration) { w.ahead = max(w.ahead, stands) }

// look returns by how much the clock was set since the last look, 0 for less
// than a second; below zero if it stands behind of where it stood meanwhile.
func (w *clockWatch) look(stands time.Duration) time.Duration {
	w.note(stands)
	by := stands - w.ahead
	if by > -time.Second {
		by = stands - w.last
	}
	if by.Abs() < time.Second {
		return 0
	}
	w.last, w.ahead = stands, stands
	return by
}

// clockStands returns how much further than time itself the wall clock went
// since the scheduler was made.
func (s *Scheduler) clockStands() time.Duration {
	t := time.Now()
	return t.Round(0).Sub(s.origin.Round(0)) - t.Sub(s.origin)
}

// noteClock is called wherever a time is stored that a job then waits for.
func (s *Scheduler) noteClock() {
	stands := s.clockStands()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.note(stands)
}

// lookAtClock looks at the queue again after the wall clock was set. What was
// put off while it stood ahead is not left waiting until then.
func (s *Scheduler) lookAtClock(ctx context.Context) error {
	stands := s.clockStands()
	s.mu.Lock()
	by := s.clock.look(stands)
	s.mu.Unlock()
	if by == 0 {
		return nil
	}
	s.cfg.Log.Warn().Dur("by_ms", by).Msg("the wall clock was set")
	defer s.poke()
	if by > 0 {
		return nil
	}
	at := now()
	// What waits for less than half as long has its own reason.
	return s.cfg.Store.Apply(ctx, queue.Rebase{Now: at, After: at.Add(-by / 2)})
}
