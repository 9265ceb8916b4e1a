package scheduler_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestHungCoreDelaysNobody: a core that does not answer a report gets no second one
// before it does, while the others get theirs, and isolations end in time.
func TestHungCoreDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 2, nil)
		hung, asked := make(chan struct{}), 0
		w.cores.play = func(c *playedCore) {
			if c.index == 1 {
				c.answer = func(_ context.Context, method string, _ json.RawMessage) (any, error, bool) {
					if method == ipc.MethodReportQueueMetrics {
						asked++
						<-hung
					}
					return nil, nil, false
				}
			}
		}
		w.start()
		defer w.end()
		defer close(hung)
		if _, err := w.sched.Isolations.Pause("worker:codex", "", 3*time.Second); err != nil {
			t.Fatal(err)
		}
		id := w.submit(task("a", time.Second, func(s *job.Spec) { s.Worker = "codex" }))[0]
		w.wait(10 * time.Second)
		if list := w.sched.Status().Isolations; len(list) != 0 {
			t.Errorf("still isolated: %+v", list)
		}
		w.wantState(id, job.Completed)
		c := w.cores.at(2)
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.reports); n < 8 || asked != 1 {
			t.Errorf("in 10 s the core that answers got %d reports, the other %d; want about 10, and 1", n, asked)
		}
	})
}
