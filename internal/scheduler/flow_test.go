package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// readCounter counts the entries of whole batches that are read.
type readCounter struct {
	*sqlite.Store
	entries atomic.Int64
}

func (s *readCounter) List(ctx context.Context, f queue.Filter) ([]queue.Entry, int, error) {
	list, n, err := s.Store.List(ctx, f)
	if f.Batch != "" {
		s.entries.Add(int64(len(list)))
	}
	return list, n, err
}

// TestEndsOfManyJobs: what the ends of a workflow's jobs cost grows with their
// number, not with its square.
func TestEndsOfManyJobs(t *testing.T) {
	const n = 100
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
	all := task("all", time.Millisecond, joined(func(f *job.Flow) {}))
	var many []job.Spec
	for i := range n {
		s := task(fmt.Sprint("one-", i), time.Duration(i%10)*time.Second, joined(func(*job.Flow) {}))
		many = append(many, s)
		all.Flow.Needs = append(all.Flow.Needs, s.Name)
	}
	for name, specs := range map[string][]job.Spec{
		"the parts of a list": {
			task("each", time.Second, joined(func(f *job.Flow) { f.ForEach = &job.ForEach{Items: items, Max: n} })),
			task("then", time.Second, joined(func(f *job.Flow) { f.Needs = []job.Name{"each"} })),
		},
		"what one job needs": append(many, all),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &readCounter{Store: openStore(t)}
				w := newWorld(t, store.Store, 1, func(c *scheduler.Config) { c.Store, c.Settings.MaxConcurrent = store, 10 })
				w.start()
				defer w.end()
				ids := w.submit(specs...)
				w.wait(10 * time.Minute)
				last := w.wantState(ids[len(ids)-1], job.Completed)
				if last.ExitKind != job.ExitSucceeded {
					t.Errorf("the last has ended as %s: %s", last.ExitKind, last.DeadLetter)
				}
				if read := store.entries.Load(); read > 20*n { // the whole batch at each end were n*n
					t.Errorf("%d entries were read for %d jobs, want at most 20 for each", read, n)
				}
			})
		})
	}
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
