package agentcore

import (
	"context"
	"sync"
	"time"

	"github.com/agentsched/agentsched/worker"
)

// runClock ends a run at its deadline, which moves on while the run waits for people: the time
// of that counts apart. Its limit does not move: the job's own deadline is a time of the world's.
type runClock struct {
	cancel context.CancelCauseFunc
	stop   *worker.Stop

	mu       sync.Mutex // guards what follows
	deadline time.Time
	limit    time.Time // zero: none
	timer    *time.Timer
	since    time.Time // when it was stopped; zero if it runs
	asked    time.Duration
}

// newRunClock returns a context that ends with parent, and with stop at the deadline. The
// caller closes the clock.
func newRunClock(parent context.Context, deadline, limit time.Time, stop *worker.Stop) (context.Context, *runClock) {
	ctx, cancel := context.WithCancelCause(parent)
	c := &runClock{cancel: cancel, stop: stop, deadline: deadline, limit: limit}
	c.timer = time.AfterFunc(time.Until(c.end()), c.ring)
	return ctx, c
}

func (c *runClock) ring() {
	c.mu.Lock()
	due := !time.Now().Before(c.end())
	c.mu.Unlock()
	if due {
		c.cancel(c.stop)
	}
}

// end returns when the run ends as things are. mu is held.
func (c *runClock) end() time.Time {
	switch stopped := !c.since.IsZero(); {
	case stopped && c.limit.IsZero():
		return time.Now().Add(time.Hour) // not as long as it waits
	case stopped, !c.limit.IsZero() && c.deadline.After(c.limit):
		return c.limit
	}
	return c.deadline
}

// wait stops the clock, or has it go on.
func (c *runClock) wait(waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case waits && c.since.IsZero():
		c.since = time.Now()
	case !waits && !c.since.IsZero():
		waited := time.Since(c.since)
		c.since, c.asked, c.deadline = time.Time{}, c.asked+waited, c.deadline.Add(waited)
	default:
		return
	}
	c.timer.Stop()
	if waits && c.limit.IsZero() {
		return
	}
	c.timer = time.AfterFunc(time.Until(c.end()), c.ring)
}

// left returns how long the run may go on as things are.
func (c *runClock) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.end())
}

// waited returns for how long the clock was stopped.
func (c *runClock) waited() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return c.asked
	}
	return c.asked + time.Since(c.since)
}

// close ends the clock and its context.
func (c *runClock) close() {
	c.mu.Lock()
	c.timer.Stop()
	c.mu.Unlock()
	c.cancel(context.Canceled)
}
