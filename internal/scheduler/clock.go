package scheduler

import (
	"context"
	"sync"
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

// wallClock is the wall clock of the host, as far as this process sees it being set.
type wallClock struct {
	origin time.Time // with its monotonic reading

	mu    sync.Mutex // guards watch
	watch clockWatch
}

// stands returns how much further than time itself the wall clock went since origin.
func (c *wallClock) stands() time.Duration {
	t := time.Now()
	return t.Round(0).Sub(c.origin.Round(0)) - t.Sub(c.origin)
}

// note is called whenever a time may be stored that a job then waits for.
func (c *wallClock) note() {
	stands := c.stands()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch.note(stands)
}

// look returns by how much the clock was set since the last look.
func (c *wallClock) look() time.Duration {
	stands := c.stands()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watch.look(stands)
}

// lookAtClock looks at the queue again after the wall clock was set. What was
// put off while it stood ahead is not left waiting until then.
func (s *Scheduler) lookAtClock(ctx context.Context) error {
	by := s.clock.look()
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
