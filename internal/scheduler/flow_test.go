package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// readCounter counts the entries that are read.
type readCounter struct {
	*sqlite.Store
	entries *atomic.Int64
}

func (s *readCounter) List(ctx context.Context, f queue.Filter) ([]queue.Entry, int, error) {
	list, n, err := s.Store.List(ctx, f)
	s.entries.Add(int64(len(list)))
	return list, n, err
}

func (s *readCounter) BatchSince(ctx context.Context, id job.BatchID, since queue.Mark) (queue.Changes, error) {
	c, err := s.Store.BatchSince(ctx, id, since)
	s.entries.Add(int64(len(c.Entries)))
	return c, err
}

func (s *readCounter) Get(ctx context.Context, id job.ID) (queue.Entry, error) {
	s.entries.Add(1)
	return s.Store.Get(ctx, id)
}

// manyJobs is a workflow of many jobs.
type manyJobs struct {
	common job.Workflow
	specs  []job.Spec // the last of them ends the last
}

// workflowsOfMany returns workflows of n jobs and more.
func workflowsOfMany(t testing.TB, n int) map[string]manyJobs {
	joined := func(change func(*job.Flow)) func(*job.Spec) {
		return func(s *job.Spec) {
			s.Flow.Joined = true
			change(&s.Flow)
		}
	}
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	items, err := json.Marshal(numbers)
	if err != nil {
		t.Fatal(err)
	}
	after := func(names ...job.Name) job.Spec {
		return task("last", time.Second, joined(func(f *job.Flow) { f.Needs = names }))
	}
	list := func(atOnce int) manyJobs {
		each := task("each", time.Second, joined(func(f *job.Flow) { f.ForEach = &job.ForEach{Items: items, Max: n, MaxParallel: atOnce} }))
		return manyJobs{specs: []job.Spec{each, after("each")}}
	}
	loop := task("again", time.Second, joined(func(f *job.Flow) {
		f.Loop = &job.Loop{Until: fmt.Sprintf("loop.turn >= %d", n), MaxIterations: n, MaxSame: n}
	}))
	var many, members []job.Spec
	var needs []job.Name
	team := job.Team{ID: "all", Strategy: job.OneForOne, MaxRestarts: n, MaxSeconds: 3600}
	for i := range n {
		s := task(fmt.Sprint("one-", i), time.Duration(i%10)*time.Second, joined(func(*job.Flow) {}))
		many, needs = append(many, s), append(needs, s.Name)
		if i%2 == 0 {
			s.Instructions = "fails at first"
		}
		members = append(members, s)
		team.Members = append(team.Members, job.Member{Job: s.Name, Restart: job.Transient})
	}
	first := task("first", 0, joined(func(f *job.Flow) { f.Input = items }))
	second := task("second", 0, joined(func(*job.Flow) {}))
	stages := []job.Stage{
		{ID: "make", Job: "first", Publishes: []job.EventType{"made"}, MaxParallel: 5},
		{ID: "take", Job: "second", Subscribes: []job.EventType{"made"}, MaxParallel: 5},
	}
	return map[string]manyJobs{
		"the parts of a list":      list(0),
		"a few parts of a list":    list(10),
		"what one job needs":       {specs: append(many, after(needs...))},
		"the turns of a loop":      {specs: []job.Spec{loop, after("again")}},
		"the members of a team":    {job.Workflow{Teams: []job.Team{team}}, append(members, after(needs...))},
		"the stages of a pipeline": {job.Workflow{Pipelines: []job.Pipeline{{ID: "line", Stages: stages}}}, []job.Spec{first, second, after("second")}},
	}
}

// playMany is a run of such a workflow's job.
func playMany(ctx context.Context, r *playedRun) job.Outcome {
	name, _, again := strings.Cut(string(r.Spec.Name), "+")
	switch {
	case r.Spec.Instructions == "fails at first" && !again:
		return job.Outcome{State: job.RunFailed, Class: job.Config, Message: "at first"}
	case r.Spec.Instructions == "fails at first":
		r.Spec.Instructions = "1s"
	case r.Spec.Flow.Node == "first":
		sleep(ctx, time.Second)
		return job.Outcome{State: job.RunCompleted, Answer: `{"events": [{"type": "made", "data": "` + name + `"}]}`}
	case r.Spec.Flow.Node == "second":
		sleep(ctx, time.Second)
		return job.Outcome{State: job.RunCompleted, Answer: `{"events": []}`}
	}
	return lasts(ctx, r)
}

// TestEndsOfManyJobs: what the ends of a workflow's jobs cost grows with their
// number, not with its square, also if the scheduler ends on the way.
func TestEndsOfManyJobs(t *testing.T) {
	for name, m := range workflowsOfMany(t, 50) {
		for again, goesOn := range map[string]time.Duration{"": 0, ", with another scheduler": 5500 * time.Millisecond} {
			t.Run(name+again, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "queue.db")
					var read atomic.Int64
					begin := func() *world {
						store := &readCounter{Store: openStoreAt(t, path), entries: &read}
						w := newWorld(t, store.Store, 1, func(c *scheduler.Config) { c.Store, c.Settings.MaxConcurrent = store, 20 })
						w.cores.play = func(c *playedCore) { c.run = playMany }
						w.start()
						return w
					}
					w := begin()
					ids, err := w.trySubmit(m.common, m.specs...)
					if err != nil {
						t.Fatal(err)
					}
					if goesOn > 0 {
						w.wait(goesOn)
						w.end()
						w = begin()
					}
					defer w.end()
					w.wait(10 * time.Minute)
					last := w.wantState(ids[len(ids)-1], job.Completed)
					if last.ExitKind != job.ExitSucceeded {
						t.Errorf("the last has ended as %s: %s", last.ExitKind, last.DeadLetter)
					}
					_, jobs, err := w.store.List(t.Context(), queue.Filter{Limit: 1})
					if err != nil || jobs < 50 {
						t.Fatalf("%d jobs, %v", jobs, err)
					}
					t.Logf("%d entries were read for %d jobs", read.Load(), jobs)
					if most := int64(12 * jobs); read.Load() > most { // the whole batch at each end were jobs*jobs
						t.Errorf("%d entries were read for %d jobs, want at most %d", read.Load(), jobs, most)
					}
				})
			})
		}
	}
}

// TestWorkflowsForgotten: what is known of workflows may be forgotten between any
// two looks, and is when they are over.
func TestWorkflowsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, func(c *scheduler.Config) { c.Settings.MaxConcurrent = 20 })
		w.cores.play = func(c *playedCore) { c.run = playMany }
		w.sched.KnowAtMost(1)
		w.start()
		ended := false
		defer func() {
			if !ended {
				w.end()
			}
		}()
		var last []job.ID
		for name, m := range workflowsOfMany(t, 6) {
			ids, err := w.trySubmit(m.common, m.specs...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			last = append(last, ids[len(ids)-1])
		}
		w.wait(10 * time.Minute)
		for _, id := range last {
			if e := w.wantState(id, job.Completed); e.ExitKind != job.ExitSucceeded {
				t.Errorf("the last has ended as %s: %s", e.ExitKind, e.DeadLetter)
			}
		}
		w.end()
		ended = true
		if n := w.sched.Followed(); n != 0 {
			t.Errorf("%d workflows are known when all are over", n)
		}
	})
}

// BenchmarkEndsOfManyJobs takes a list of 2,000 parts, of which 10 may run at once,
// to its end, with parts that take no time.
func BenchmarkEndsOfManyJobs(b *testing.B) {
	m := workflowsOfMany(b, 2000)["a few parts of a list"]
	var read atomic.Int64
	var used time.Duration
	for b.Loop() {
		b.StopTimer()
		batch, entries := scheduler.NewBatch("test", "digest", m.specs, m.common, stamp())
		batch.Private = true
		store := &readCounter{Store: openStore(b), entries: &read}
		if err := store.Enqueue(b.Context(), batch, entries); err != nil {
			b.Fatal(err)
		}
		w := newWorld(b, store.Store, 1, func(c *scheduler.Config) {
			c.Store, c.Settings.MaxConcurrent, c.Batch = store, 20, batch.ID
		})
		w.cores.play = func(c *playedCore) {
			c.run = func(context.Context, *playedRun) job.Outcome {
				return job.Outcome{State: job.RunCompleted, Answer: "done"}
			}
		}
		before := cpuTime()
		b.StartTimer()
		err := w.sched.Run(b.Context())
		b.StopTimer()
		used += cpuTime() - before
		if err != nil {
			b.Fatal(err)
		}
		w.wantState(entries[len(entries)-1].ID, job.Completed)
		if err := w.store.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	jobs := float64(2000 * b.N)
	b.ReportMetric(float64(read.Load())/jobs, "entries/job")
	b.ReportMetric(used.Seconds()*1000/jobs, "cpu-ms/job")
	b.ReportMetric(b.Elapsed().Seconds()*1000/jobs, "ms/job")
}

// cpuTime is what this process has used of the processors.
func cpuTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// TestSharedEndInOneLook: what follows from one end concludes a list without items,
// with which another job ends that was to be let go by the same look.
func TestSharedEndInOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, nil)
		w.start()
		defer w.end()
		after := func(s *job.Spec) {
			s.Flow.Joined, s.Flow.Needs = true, []job.Name{"first"}
			s.Key, s.OnDuplicate = "k", job.Coalesce
		}
		ids := w.submit(
			task("first", time.Second, func(s *job.Spec) { s.Flow.Joined = true }),
			task("list", time.Second, after, func(s *job.Spec) {
				s.Flow.ForEach = &job.ForEach{Items: json.RawMessage("[]"), Max: 1}
			}),
			task("like the list", time.Second, after),
			task("last", time.Second, func(s *job.Spec) { s.Flow.Joined, s.Flow.Needs = true, []job.Name{"like the list"} }),
		)
		w.wait(time.Minute)
		for _, id := range ids {
			w.wantState(id, job.Completed)
		}
	})
}
