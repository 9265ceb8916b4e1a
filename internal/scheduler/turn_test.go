package scheduler_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
)

// keyed lines jobs of one key up.
func keyed(key string) func(*job.Spec) {
	return func(s *job.Spec) { s.Key, s.OnDuplicate = key, job.Serialize }
}

func priority(p int) func(*job.Spec) { return func(s *job.Spec) { s.Priority = p } }

func deadline(d time.Duration) func(*job.Spec) {
	return func(s *job.Spec) {
		at := stamp().Add(d)
		s.Deadline = &at
	}
}

func runnableIn(d time.Duration) func(*job.Spec) {
	return func(s *job.Spec) {
		at := stamp().Add(d)
		s.RunnableAt = &at
	}
}

// TestTurnWhileNoRoom: a job expires while every slot is taken, so that another of
// its key, in another lane, has its turn. That one begins as soon as there is a slot.
func TestTurnWhileNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) { c.Settings.MaxConcurrent = 1 })
		w.start()
		defer w.end()
		long := w.submit(task("long", 10*time.Second))[0]
		synctest.Wait()
		ids := w.submit(task("a", time.Second, priority(-1), keyed("k"), deadline(3*time.Second)), task("b", time.Second, priority(-2), keyed("k")))
		w.wait(5 * time.Second)
		w.wantState(ids[0], job.Expired)
		w.wait(5 * time.Second)
		w.wantState(long, job.Completed)
		w.wantState(ids[1], job.Dispatched)
	})
}

// TestTurnAcrossScopes: a job of the run's own batch expires, and one of the same
// key that was submitted to the run has its turn; and the other way round.
func TestTurnAcrossScopes(t *testing.T) {
	for name, own := range map[string]bool{"of the run's own batch": true, "that was submitted": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := openStore(t)
				expiring := task("a", time.Second, keyed("k"), deadline(3*time.Second), runnableIn(time.Hour))
				next := task("b", time.Second, keyed("k"))
				b, entries := scheduler.NewBatch("run", "d", []job.Spec{expiring, task("keeps the run going", time.Minute)}, job.Workflow{}, stamp())
				if !own {
					b, entries = scheduler.NewBatch("run", "d", []job.Spec{task("keeps the run going", time.Minute)}, job.Workflow{}, stamp())
				}
				b.Private = true
				if err := store.Enqueue(t.Context(), b, entries); err != nil {
					t.Fatal(err)
				}
				w := newWorld(t, store, 1, func(c *scheduler.Config) { c.Batch = b.ID })
				w.start()
				defer w.end()
				var waits job.ID
				if own {
					waits = w.submit(next)[0]
				} else {
					w.submit(expiring)
					late, entries := scheduler.NewBatch("run", "d", []job.Spec{next}, job.Workflow{}, stamp())
					late.ID, late.Private = b.ID, true
					entries[0].Batch = b.ID
					if err := w.sched.Submit(t.Context(), late, entries); err != nil {
						t.Fatal(err)
					}
					waits = entries[0].ID
				}
				w.wait(2 * time.Second)
				w.wantState(waits, job.Queued)
				w.wait(3 * time.Second)
				w.wantState(waits, job.Completed)
			})
		})
	}
}

// TestRefusedInBothScopes: what has to wait for a slot of its kind, in the run's
// own batch and in what was submitted, does not keep what is behind it from running.
// While every slot was taken, all of it has become known.
func TestRefusedInBothScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := openStore(t)
		codex := func(s *job.Spec) { s.Worker = "codex" }
		own := []job.Spec{task("its slot", time.Hour, codex, priority(1000)), task("for a while", 10*time.Second, priority(1000)), task("other", time.Minute, priority(-1))}
		var shared []job.Spec
		for i := range 40 {
			own = append(own, task(fmt.Sprint("job-", i), time.Hour, codex, priority(2*i)))
			shared = append(shared, task(fmt.Sprint("job-", i), time.Hour, codex, priority(2*i+1)))
		}
		b, entries := scheduler.NewBatch("run", "d", own, job.Workflow{}, stamp())
		b.Private = true
		if err := store.Enqueue(t.Context(), b, entries); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, store, 1, func(c *scheduler.Config) {
			c.Batch = b.ID
			c.Settings.Workers["codex"] = job.WorkerSettings{MaxConcurrent: 1}
		})
		w.start()
		defer w.end()
		w.submit(shared...)
		w.wait(5 * time.Second)
		w.wantState(entries[2].ID, job.Queued)
		w.wait(5 * time.Second)
		w.wantState(entries[1].ID, job.Completed)
		w.wantState(entries[2].ID, job.Dispatched)
	})
}
