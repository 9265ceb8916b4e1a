package agentcore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/worker"
)

// TestRunClock: a run ends at its deadline, which moves on while it waits for people, but not beyond its limit.
func TestRunClock(t *testing.T) {
	for name, c := range map[string]struct {
		limit time.Duration   // 0: none
		waits []time.Duration // it begins to wait at the first, goes on at the second, …
		ends  time.Duration
	}{
		"without waiting":          {0, nil, 10 * time.Second},
		"it waits":                 {0, []time.Duration{5 * time.Second, time.Hour}, time.Hour + 5*time.Second},
		"it waits twice":           {0, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second}, 13 * time.Second},
		"the job's own deadline":   {8 * time.Second, nil, 8 * time.Second},
		"that while it waits":      {20 * time.Second, []time.Duration{5 * time.Second}, 20 * time.Second},
		"that after it has waited": {12 * time.Second, []time.Duration{5 * time.Second, 9 * time.Second}, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var limit time.Time
				if c.limit > 0 {
					limit = began.Add(c.limit)
				}
				stop := &worker.Stop{Message: "the time is over"}
				ctx, clock := newRunClock(t.Context(), began.Add(10*time.Second), limit, stop)
				defer clock.close()
				for i, at := range c.waits {
					time.Sleep(at - time.Since(began))
					clock.wait(i%2 == 0)
					clock.wait(i%2 == 0) // saying so again changes nothing
				}
				<-ctx.Done()
				if took := time.Since(began); took != c.ends || context.Cause(ctx) != stop {
					t.Errorf("it ended after %s by %v, want %s", took, context.Cause(ctx), c.ends)
				}
				var asked time.Duration
				for i := 1; i < len(c.waits); i += 2 {
					asked += c.waits[i] - c.waits[i-1]
				}
				if len(c.waits)%2 == 1 {
					asked += c.ends - c.waits[len(c.waits)-1]
				}
				if got := clock.waited(); got != asked {
					t.Errorf("it waited for %s, want %s", got, asked)
				}
			})
		})
	}
}
