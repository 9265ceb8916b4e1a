package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// BenchmarkCensus counts a growing number of queued jobs of 100 tenants.
func BenchmarkCensus(b *testing.B) {
	for _, queued := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(queued), func(b *testing.B) {
			s := openBench(b)
			fill(b, s, queued)
			for b.Loop() {
				if c, err := s.Census(b.Context()); err != nil || c.Queued != queued {
					b.Fatalf("%d queued, %v", c.Queued, err)
				}
			}
		})
	}
}

// BenchmarkSurvey looks at 100,000 jobs that have ended, each a second after the
// one before it.
func BenchmarkSurvey(b *testing.B) {
	const ended = 100_000
	s := openBench(b)
	fill(b, s, ended)
	finishAll(b, s, ended)
	fill(b, s, 1000, func(e *queue.Entry) { e.Spec.Name = "q" + e.Spec.Name })
	end := benchStart.Add(ended * time.Second)
	pages := map[string]queue.Filter{
		"newest":    {Newest: true, Limit: 100},
		"oldest":    {Limit: 100},
		"queued":    {States: []job.EntryState{job.Queued}, Limit: 100, Newest: true},
		"completed": {States: []job.EntryState{job.Completed}, Limit: 100, Newest: true},
		"cancelled": {States: []job.EntryState{job.Cancelled}, Limit: 100, Newest: true},
		"tenant":    {Tenant: "tenant-7", Limit: 100, Newest: true},
		"worker":    {Worker: "codex", Limit: 100, Newest: true},
		"search":    {Search: "parser", Limit: 100, Newest: true},
	}
	for name, f := range pages {
		_, next, _, err := s.Page(b.Context(), f, "")
		if err != nil {
			b.Fatal(err)
		}
		for which, cursor := range map[string]string{"first": "", "second": next} {
			b.Run("page/"+name+"/"+which, func(b *testing.B) {
				for b.Loop() {
					if _, _, _, err := s.Page(b.Context(), f, cursor); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	for name, since := range map[string]time.Time{"hour": end.Add(-time.Hour), "all": benchStart} {
		b.Run("throughput/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Throughput(b.Context(), since, end, 5*time.Minute); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("runs/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Runs(b.Context(), since, end, 1000); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("runs/first hour", func(b *testing.B) {
		for b.Loop() {
			if runs, err := s.Runs(b.Context(), benchStart, benchStart.Add(time.Hour), 1000); err != nil || len(runs) != 1000 {
				b.Fatal(len(runs), err)
			}
		}
	})
}

// finishAll takes n jobs through an attempt each, in large transactions.
func finishAll(b *testing.B, s *sqlite.Store, n int) {
	b.Helper()
	ctx := b.Context()
	for at := benchStart; n > 0; {
		c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "bench", Max: min(n, 1000), Now: at, Lease: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		var ops []queue.Op
		for _, e := range c.Entries {
			end := at.Add(time.Second)
			ops = append(ops,
				queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: 1, State: job.Pending, Started: at}},
				queue.Move{ID: e.ID, Fence: e.Fence, Attempt: 1, To: job.Running},
				queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: end, Exit: job.ExitSucceeded,
					Outcome: job.Outcome{State: job.RunCompleted, StartedAt: at, EndedAt: end}})
			at = end
		}
		if err := s.Apply(ctx, ops...); err != nil {
			b.Fatal(err)
		}
		n -= len(c.Entries)
	}
}
