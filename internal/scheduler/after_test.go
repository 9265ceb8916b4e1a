package scheduler

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// TestAfter compares what after says of an entry with what the store says, for
// every way in which a claim ends.
func TestAfter(t *testing.T) {
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := at.Add(time.Hour)
	used := job.Usage{InputTokens: 3, CostUSD: 0.5, CostKnown: true, Steps: 1}
	failed := job.Outcome{State: job.RunFailed, Class: job.Server, Message: "boom", Usage: used, StartedAt: at, EndedAt: at}
	for name, end := range map[string]func(e *queue.Entry) queue.Op{
		"released": func(e *queue.Entry) queue.Op {
			return queue.Release{ID: e.ID, Fence: e.Fence, Now: at, RunnableAt: later, Choice: 1, Waiting: "no room"}
		},
		"refused for good": func(e *queue.Entry) queue.Op {
			return queue.Finish{ID: e.ID, Fence: e.Fence, Now: at, Exit: job.ExitFailed, DeadLetter: "too late", Outcome: job.Outcome{State: job.RunFailed, Class: job.Budget}}
		},
		"succeeded": func(e *queue.Entry) queue.Op {
			return queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: at, Exit: job.ExitSucceeded, DeadLetter: "none",
				Outcome: job.Outcome{State: job.RunCompleted, Usage: used, StartedAt: at, EndedAt: at}}
		},
		"failed": func(e *queue.Entry) queue.Op {
			return queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: at, Exit: job.ExitFailed, DeadLetter: "given up", Outcome: failed}
		},
		"cancelled": func(e *queue.Entry) queue.Op {
			return queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: at, Exit: job.ExitCancelled,
				Outcome: job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, StartedAt: at, EndedAt: at}}
		},
		"to be retried": func(e *queue.Entry) queue.Op {
			return queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Now: at, Outcome: failed,
				Retry: queue.Retry{RunnableAt: later, Choice: 1, Waiting: "SERVER; next attempt after 1h0m0s"}}
		},
		"lost": func(e *queue.Entry) queue.Op {
			return queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: 1, Lost: true, Now: at, Outcome: failed, Retry: queue.Retry{RunnableAt: at, Waiting: "interrupted"}}
		},
	} {
		b := queue.Batch{ID: job.BatchID(name), Private: true}
		e := queue.Entry{ID: job.ID(name), CreatedAt: at, RunnableAt: at, Waiting: "before",
			Spec: job.Spec{Name: "a", Tenant: "t", Worker: "codex", Fallback: []job.Choice{{Worker: "claude"}}}}
		if err := store.Enqueue(t.Context(), b, []queue.Entry{e}); err != nil {
			t.Fatal(err)
		}
		claims, err := store.Claim(t.Context(), queue.ClaimSpec{Holder: "h", Batch: b.ID, Max: 1, Now: at, Lease: time.Minute})
		if err != nil || len(claims.Entries) != 1 {
			t.Fatalf("%s: claimed %v, %v", name, claims, err)
		}
		got := claims.Entries[0]
		op := end(&got)
		var ops []queue.Op
		if f, ok := op.(queue.Finish); ok && f.Attempt > 0 {
			ops = append(ops, queue.Begin{ID: got.ID, Fence: got.Fence, Attempt: job.Attempt{Number: 1, State: job.Pending, Started: at}},
				queue.Move{ID: got.ID, Fence: got.Fence, Attempt: 1, To: job.Running})
		}
		if err := store.Apply(t.Context(), append(ops, op)...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		stored, err := store.Get(t.Context(), got.ID)
		if err != nil {
			t.Fatal(err)
		}
		told := after(got, op)
		want, have := publicState(&stored), publicState(&told)
		if want != have {
			t.Errorf("%s: after says\n%+v, the store\n%+v", name, have, want)
		}
	}
}

// publicState is what an update tells of an entry.
func publicState(e *queue.Entry) any {
	return struct {
		state    job.EntryState
		run      job.RunState
		exit     job.ExitKind
		attempts int
		choice   int
		spent    job.Usage
		text     [2]string
		runnable time.Time
	}{e.State, StateOf(e), e.ExitKind, e.Attempts, e.Choice, e.Spent, [2]string{e.Waiting, e.DeadLetter}, e.RunnableAt}
}
