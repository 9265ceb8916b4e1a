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

// now is the time, by which something may be put off: that the clock stood ahead then is noted with the reading itself,
// since the clock can be put right at any moment.
func (c *wallClock) now() time.Time {
	t := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch.note(c.stands(t))
	return t
}

// stands returns how much further than time itself the wall clock went from origin to t.
func (c *wallClock) stands(t time.Time) time.Duration {
	return t.Round(0).Sub(c.origin.Round(0)) - t.Sub(c.origin)
}

// look returns by how much the clock was set since the last look.
func (c *wallClock) look() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watch.look(c.stands(time.Now()))
}

// lookAtClock looks at the queue again after the wall clock was set. What was
// put off while it stood ahead is not left waiting until then. ahead is by how much it
// stood ahead before the last look, and the result is that for the next one: what was
// decided then may have been stored only after the queue was looked at.
func (s *Scheduler) lookAtClock(ctx context.Context, ahead time.Duration) (time.Duration, error) {
	by := s.loop.clock.look()
	if by != 0 {
		s.cfg.Log.Warn().Dur("by_ms", by).Msg("the wall clock was set")
		defer s.poke()
	}
	ahead = max(ahead, -by)
	if by > 0 || ahead == 0 {
		return 0, nil
	}
	at := now()
	// What waits for less than half as long has its own reason.
	return max(-by, 0), s.cfg.Store.Apply(ctx, queue.Rebase{Now: at, After: at.Add(ahead / 2)})
}
