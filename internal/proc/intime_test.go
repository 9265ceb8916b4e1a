package proc

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestInTime: a ghost is one that had the time to die. After a standstill it gets that anew.
func TestInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		ghost := func(stands ...time.Duration) func(time.Time) error {
			calls = 0
			return func(deadline time.Time) error {
				time.Sleep(time.Until(deadline) + stands[min(calls, len(stands)-1)])
				calls++
				return &GhostError{Run: "r"}
			}
		}
		for _, c := range []struct {
			stands []time.Duration
			calls  int
		}{
			{[]time.Duration{0}, 1},
			{[]time.Duration{time.Minute, 0}, 2},
			{[]time.Duration{time.Minute, time.Hour, time.Millisecond}, 3},
			{[]time.Duration{time.Minute}, 4},
		} {
			if err := inTime(time.Second, ghost(c.stands...)); err == nil || calls != c.calls {
				t.Errorf("after standstills of %s: %v, %d calls, want %d", c.stands, err, calls, c.calls)
			}
		}
	})
}
