package scheduler_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// spender is a world with one core, on which a run spends what it is told to.
func spender(t *testing.T, store *sqlite.Store, change func(*scheduler.Config)) (w *world, spend func(usd float64)) {
	amounts := make(chan float64)
	w = newWorld(t, store, 1, func(c *scheduler.Config) {
		c.Cores, c.Settings.Limits.CostWindows = 2, windows(time.Minute)
		if change != nil {
			change(c)
		}
	})
	w.cores.play = func(c *playedCore) {
		c.run = func(ctx context.Context, r *playedRun) job.Outcome {
			r.tell(job.Event{Kind: job.EventState, State: job.Running})
			total := 0.0
			for {
				select {
				case usd := <-amounts:
					if total += usd; usd == 0 {
						return job.Outcome{State: job.RunCompleted, Usage: job.Usage{CostUSD: total}}
					}
					r.tell(job.Event{Kind: job.EventUsage, Usage: &job.Usage{CostUSD: usd}})
				case <-ctx.Done():
					return job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, Usage: job.Usage{CostUSD: total}}
				}
			}
		}
	}
	w.start()
	return w, func(usd float64) {
		amounts <- usd
		synctest.Wait()
	}
}

func windows(length time.Duration) []ipc.CostWindow {
	return []ipc.CostWindow{{Window: job.Duration(length), MaxUSD: 100}}
}

func spentIn(c ipc.Configure) (usd float64) {
	for _, p := range c.Limits.CostWindows[0].Spent {
		usd += p.USD
	}
	return usd
}

// duringRead calls during while somebody reads what was spent lately, before and
// after the store is asked.
type duringRead struct {
	*sqlite.Store
	during func()
}

func (s *duringRead) List(ctx context.Context, f queue.Filter) ([]queue.Entry, int, error) {
	if s.during == nil || f.Since.IsZero() {
		return s.Store.List(ctx, f)
	}
	during := s.during
	s.during = nil
	during()
	list, n, err := s.Store.List(ctx, f)
	during()
	return list, n, err
}

// TestReloadKeepsSpending: with a longer window, what was spent before counts, and
// so does what is spent while that is read; each cent once.
func TestReloadKeepsSpending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &duringRead{Store: openStore(t)}
		var tuning scheduler.Tuning
		w, spend := spender(t, store.Store, func(c *scheduler.Config) {
			c.Store = store
			tuning = c.Tuning
		})
		defer w.end()
		w.submit(task("ended", 0), task("ends meanwhile", 0))
		synctest.Wait()
		spend(1)
		spend(0) // one of them ends
		w.wait(30 * time.Minute)
		w.submit(task("goes on", 0))
		synctest.Wait()
		spend(2)
		calls := 0
		store.during = func() {
			if calls++; calls == 1 {
				spend(4)
				spend(0) // an end while the store is read
				return
			}
			spend(8)
		}
		tuning.Settings.Limits.CostWindows = windows(time.Hour)
		if err := w.sched.Reload(t.Context(), tuning); err != nil {
			t.Fatal(err)
		}
		if got := spentIn(w.cores.begin(2).configured); got != 15 || calls != 2 {
			t.Errorf("a core that starts is told of %g US dollars, 15 were spent (%d looks at the store)", got, calls)
		}
	})
}

// TestSpendingWhileCoreStarts: what is spent after a core has asked for its settings,
// and before it is up, reaches it.
func TestSpendingWhileCoreStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, spend := spender(t, openStore(t), nil)
		defer w.end()
		w.submit(task("a", 0))
		synctest.Wait()
		spend(1)
		c := w.cores.begin(2)
		spend(4)
		w.cores.handler.CoreUp(c.core)
		spend(8)
		w.wait(3 * time.Second)
		got := spentIn(c.configured)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, r := range c.reports {
			if r.Elsewhere != nil {
				got += r.Elsewhere.Spent["t"]
			}
		}
		if got != 13 {
			t.Errorf("the new core knows of %g US dollars, 13 were spent", got)
		}
	})
}

// TestPauseWhileCoreStarts: a pause that falls between a core's settings and its
// first job holds there.
func TestPauseWhileCoreStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 0, func(c *scheduler.Config) { c.Cores = 1 })
		w.start()
		defer w.end()
		c := w.cores.begin(1)
		if _, err := w.sched.Isolations.Pause("worker:codex", "", 0); err != nil {
			t.Fatal(err)
		}
		w.submit(task("a", time.Second, func(s *job.Spec) { s.Worker = "codex" }))
		synctest.Wait()
		w.cores.handler.CoreUp(c.core)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.methods) == 0 || c.methods[0] != ipc.MethodIsolate {
			t.Errorf("the core was asked for %v, want to hear of the pause first", c.methods)
		}
	})
}
