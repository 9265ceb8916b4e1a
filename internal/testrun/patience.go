package testrun

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen. It is an amount of
// machine time (see Timer), so a busy machine does not exceed it.
const Patience = 2 * time.Minute

// tick is how often a Timer looks at the machine.
const tick = 100 * time.Millisecond

// cleanupTime is kept of a test binary's -timeout for the clean-up of a test
// that gave up: a binary that runs into its -timeout cleans up nothing.
const cleanupTime = 30 * time.Second

// A Timer runs out after an amount of machine time: an interval counts for the
// share of a processor that each runnable thread had in it. With 2 processors
// and 10 runnable threads, a second counts for 0.2 seconds. It also runs out
// shortly before the -timeout of the test binary.
type Timer struct {
	// C is closed when the time has run out.
	C     <-chan struct{}
	once  sync.Once
	stop  chan struct{}
	again chan struct{} // capacity 1: the time begins anew
	done  chan struct{}
}

// NewTimer returns a running timer. It stops with the test, if not earlier.
func NewTimer(tb testing.TB, d time.Duration) *Timer {
	c := make(chan struct{})
	t := newTimer(tb, d, func() { close(c) })
	t.C = c
	return t
}

// newTimer calls late when the time has run out.
func newTimer(tb testing.TB, d time.Duration, late func()) *Timer {
	t := &Timer{stop: make(chan struct{}), again: make(chan struct{}, 1), done: make(chan struct{})}
	var end time.Time
	if limited, ok := tb.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, is := limited.Deadline(); is {
			end = at.Add(-cleanupTime)
		}
	}
	go func() {
		defer close(t.done)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		last := time.Now()
		for left := d; ; {
			select {
			case <-t.stop:
				return
			case <-t.again:
				left = d
			case now := <-ticker.C:
				// A late tick counts as two at most: whoever was late here was late there.
				left -= time.Duration(float64(min(now.Sub(last), 2*tick)) * share())
				last = now
				if left <= 0 || !end.IsZero() && now.After(end) {
					late()
					return
				}
			}
		}
	}()
	tb.Cleanup(t.Stop)
	return t
}

// Reset begins the time anew: what is waited for is on its way.
func (t *Timer) Reset() {
	select {
	case t.again <- struct{}{}:
	default:
	}
}

// Stop ends the timer; C stays as it is. It may be called again.
func (t *Timer) Stop() {
	t.once.Do(func() { close(t.stop) })
	<-t.done
}

// After is the channel of a new timer of Patience.
func After(tb testing.TB) <-chan struct{} { return NewTimer(tb, Patience).C }

// AfterFunc calls f when Patience has run out, unless the test ends before.
func AfterFunc(tb testing.TB, f func()) { newTimer(tb, Patience, f) }

// Context returns a context that ends with cause when d of machine time has
// run out, with the test, or when it is cancelled.
func Context(tb testing.TB, parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	t := newTimer(tb, d, func() { cancel(cause) })
	return ctx, func() { cancel(context.Canceled); t.Stop() }
}

// Until looks every 10 ms whether something holds. It reports false when
// Patience has run out before.
func Until(tb testing.TB, holds func() bool) bool {
	return Within(tb, Patience, holds)
}

// Within is Until with a patience of the caller's.
func Within(tb testing.TB, d time.Duration, holds func() bool) bool {
	timer := NewTimer(tb, d)
	defer timer.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-timer.C:
			return holds()
		}
	}
	return true
}

// Moving is Until for what comes in steps: patience begins anew whenever step
// returns another progress than before.
func Moving[P comparable](tb testing.TB, step func() (progress P, done bool)) bool {
	timer := NewTimer(tb, Patience)
	defer timer.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	last, done := step()
	for !done {
		select {
		case <-look.C:
		case <-timer.C:
			return false
		}
		var now P
		if now, done = step(); now != last {
			last = now
			timer.Reset()
		}
	}
	return true
}

// share is the part of a processor that each runnable thread has now, at most 1.
func share() float64 {
	data, err := os.ReadFile("/proc/loadavg") // "0.42 0.36 0.30 3/812 4711", proc(5)
	if err != nil {
		return 1 // not Linux
	}
	return shareOf(data, runtime.NumCPU())
}

func shareOf(loadavg []byte, processors int) float64 {
	fields := bytes.Fields(loadavg)
	if len(fields) < 4 {
		return 1
	}
	running, _, _ := bytes.Cut(fields[3], []byte("/"))
	n, err := strconv.Atoi(string(running))
	if err != nil || n <= processors {
		return 1
	}
	return float64(processors) / float64(n)
}
