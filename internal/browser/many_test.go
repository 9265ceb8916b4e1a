package browser

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// TestManyJobs: with ten thousand ended jobs, in a soak a hundred thousand, of a
// hundred tenants and two workers, the pages stay quick.
func TestManyJobs(t *testing.T) {
	total := 10_000
	if testrun.Soaking() {
		total = 100_000
	}
	have := needTools(t)
	d := newDaemon(t, have.node)
	began := time.Now()
	fill(t, filepath.Join(d.state, "queue.db"), total)
	t.Logf("filled in %s", time.Since(began).Round(time.Millisecond))
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, have)
	b.play(t, d, "many", obj{"total": total})
}

// fill stores jobs that have each ended after one attempt within the last hour.
func fill(t *testing.T, path string, total int) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	start := time.Now().UTC().Add(-time.Hour).Truncate(time.Millisecond)
	batch := queue.Batch{ID: job.NewBatchID(), Source: "many.yaml", CreatedAt: start}
	workers := []job.WorkerKind{"codex", "claude"}
	for first := 0; first < total; first += 1000 {
		at := start.Add(time.Duration(first) * 30 * time.Minute / time.Duration(total))
		var entries []queue.Entry
		for n := first; n < min(first+1000, total); n++ {
			entries = append(entries, queue.Entry{ID: job.NewID(), CreatedAt: at, RunnableAt: at, Spec: job.Spec{
				Name: job.Name(fmt.Sprintf("job-%d", n)), Tenant: job.Tenant(fmt.Sprintf("tenant-%d", n%100)), Type: job.WorkerTask, Worker: workers[n%2],
				Workspace: job.Workspace{Path: "/srv/shop", Isolation: job.Worktree}, Capabilities: []job.Capability{job.CanRead},
				Instructions: "Fix the failing test in the parser and say what was wrong.",
			}})
		}
		if err := s.Enqueue(t.Context(), batch, entries); err != nil {
			t.Fatal(err)
		}
		c, err := s.Claim(t.Context(), queue.ClaimSpec{Holder: "fill", Max: len(entries), Now: at, Lease: time.Hour})
		if err != nil || len(c.Entries) != len(entries) {
			t.Fatalf("%d claimed, want %d: %v", len(c.Entries), len(entries), err)
		}
		var ops []queue.Op
		for _, e := range c.Entries {
			end := at.Add(time.Second)
			ops = append(ops,
				queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: 1, Choice: job.Choice{Worker: e.Spec.Worker}, State: job.Pending, Started: at}},
				queue.Move{ID: e.ID, Fence: e.Fence, Attempt: 1, To: job.Running},
				queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: end, Exit: job.ExitSucceeded, Outcome: job.Outcome{
					State: job.RunCompleted, StartedAt: at, EndedAt: end, Usage: job.Usage{InputTokens: 100, OutputTokens: 10, CostUSD: 0.01, CostKnown: true}}})
		}
		if err := s.Apply(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
}
