package sched_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// keeper is a Kernel in virtual time whose leases are enforced.
type keeper struct {
	*desk
	changed chan queue.Entry
}

// keeping runs test in virtual time beside Keep.
func keeping(t *testing.T, test func(*keeper)) {
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		k := &keeper{desk: &desk{T: t, store: store}, changed: make(chan queue.Entry, 100)}
		k.Kernel = sched.New(store, sched.Options{Changed: func(e *queue.Entry) { k.changed <- *e }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.Keep(ctx) }()
		synctest.Wait()
		test(k)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Keep ended with %v", err)
		}
	})
}

// becomes waits, in virtual time, until an entry is told to be in a state, and
// returns how long that took.
func (k *keeper) becomes(id job.ID, state job.EntryState) time.Duration {
	k.Helper()
	for len(k.changed) > 0 {
		<-k.changed // by the test's own calls
	}
	began := time.Now()
	for {
		select {
		case e := <-k.changed:
			if e.ID == id && e.State == state {
				return time.Since(began)
			}
		case <-time.After(48 * time.Hour):
			k.Fatalf("%s never became %s", id, state)
		}
	}
}

// TestLeasesAreEnforced: a claim whose worker says nothing goes back when its
// lease ends, one that is extended does not, and a late word is refused.
func TestLeasesAreEnforced(t *testing.T) {
	keeping(t, func(k *keeper) {
		ctx := k.Context()
		lost, kept, done := k.enqueue(sched.EnqueueRequest{Priority: 3}), k.enqueue(sched.EnqueueRequest{Priority: 2}), k.enqueue(sched.EnqueueRequest{Priority: 1})
		claimed := k.claim("w", 3)
		if _, err := k.Complete(ctx, sched.CompleteRequest{SchedID: done.SchedID, WorkerID: "w"}); err != nil {
			k.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if _, err := k.Extend(ctx, []job.Fence{claimed[1].Fence}, 5*time.Minute); err != nil {
			k.Fatal(err)
		}
		if took := k.becomes(lost.SchedID, job.Queued); took != 30*time.Second {
			k.Errorf("the claim came back after %s more, want 30s", took)
		}
		_, err := k.Complete(ctx, sched.CompleteRequest{SchedID: lost.SchedID, WorkerID: "w", Fence: claimed[0].Fence})
		k.refused(err, sched.IllegalTransition, "queued")
		if again := k.claim("other", 3); !slices.Equal(ids(again), []job.ID{lost.SchedID}) {
			k.Fatalf("claimed again %v, want %s", ids(again), lost.SchedID)
		}
		_, err = k.Complete(ctx, sched.CompleteRequest{SchedID: lost.SchedID, WorkerID: "other", Fence: claimed[0].Fence})
		k.refused(err, sched.IllegalTransition, "fence")
		if took := k.becomes(kept.SchedID, job.Queued); took != 5*time.Minute-30*time.Second {
			k.Errorf("the extended claim came back %s later, want 5m after it was extended", took)
		}
	})
}

// TestUsageThatCannotBe: complete refuses it, by its field, and the entry stays
// with its worker.
func TestUsageThatCannotBe(t *testing.T) {
	d := open(t)
	e := d.enqueue(sched.EnqueueRequest{})
	d.claim("w", 1)
	for params, want := range map[string]string{
		`"input_tokens":-5`:                  "usage.input_tokens: -5 is not allowed",
		`"output_tokens":9000000000000000`:   "usage.output_tokens: 9000000000000000 is not allowed",
		`"cost_usd":-0.5`:                    "usage.cost_usd: -0.5 is not allowed",
		`"cost_usd":1e300`:                   "usage.cost_usd: 1e+300 is not allowed",
		`"cost_usd":1,"command_ms":-1`:       "usage.command_ms: -1 is not allowed",
		`"steps":1,"cache_write_tokens":-12`: "usage.cache_write_tokens: -12 is not allowed",
	} {
		_, err := d.Call(t.Context(), sched.MethodComplete, []byte(`{"sched_id":"`+string(e.SchedID)+`","worker_id":"w","usage":{`+params+`}}`))
		d.refused(err, sched.InvalidPayload, want)
	}
	if got, err := d.Get(t.Context(), e.SchedID); err != nil || got.State != job.Dispatched {
		t.Errorf("afterwards it is %s, %v; want dispatched", got.State, err)
	}
}
