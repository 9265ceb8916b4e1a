package sqlite_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// running returns a store with one job, of tenant a, of which an attempt runs.
func running(t *testing.T) (*sqlite.Store, queue.Entry) {
	t.Helper()
	s := openTemp(t)
	first := named("a")
	first.Spec.Tenant = "a"
	if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{first}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), queue.ClaimSpec{Holder: "h", Max: 1, Now: time.Now(), Lease: time.Hour})
	if err != nil || len(c.Entries) != 1 {
		t.Fatal(c, err)
	}
	e := c.Entries[0]
	begin := queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: 1, State: job.Pending, Started: time.Now()}}
	if err := s.Apply(t.Context(), begin, queue.Move{ID: e.ID, Fence: e.Fence, Attempt: 1, To: job.Running}); err != nil {
		t.Fatal(err)
	}
	return s, e
}

// TestLedgerDiskFull lets the disk fill up while events are charged by many:
// what is charged is what is stored.
func TestLedgerDiskFull(t *testing.T) {
	s, e := running(t)
	ctx := t.Context()
	if err := s.LimitPages(ctx, 20); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range int64(8) {
		wg.Go(func() {
			for i := range int64(40) {
				// Refused or not, its error is told by what is there afterwards.
				s.Apply(ctx, queue.Append{Events: []job.Event{{Job: e.ID, Attempt: 1, Seq: w*100 + i, Time: time.Now(), Kind: job.EventUsage,
					Text: strings.Repeat("long ", 100), Usage: &job.Usage{InputTokens: 1 << (w % 4)}}}})
			}
		})
	}
	wg.Wait()
	if err := s.LimitPages(ctx, -1); err != nil {
		t.Fatal(err)
	}
	events, err := s.Events(ctx, e.ID, 0, 1000)
	if err != nil || len(events) == 0 || len(events) == 320 {
		t.Fatalf("%d events are stored, %v; the disk must fill up in between", len(events), err)
	}
	var want int64
	for _, ev := range events {
		want += ev.Usage.InputTokens
	}
	got, err := s.Accounts(ctx, queue.AccountFilter{})
	if err != nil || got[0].Usage.InputTokens != want {
		t.Errorf("%+v is charged, %v; the events that are stored say %d tokens", got, err, want)
	}
}

// TestLedgerGroups: what ends at once is charged in few rows' updates, and no
// commit is made for it.
func TestLedgerGroups(t *testing.T) {
	s, e := running(t)
	before := s.Commits()
	ops := []queue.Op{}
	for seq := range int64(500) {
		ops = append(ops, queue.Append{Events: []job.Event{{Job: e.ID, Attempt: 1, Seq: seq + 1, Time: time.Unix(0, 0), Kind: job.EventUsage, Usage: &job.Usage{OutputTokens: 2}}}})
	}
	if err := s.Apply(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	if got := s.Commits() - before; got != 1 {
		t.Errorf("%d commits, want 1", got)
	}
	got, err := s.Accounts(t.Context(), queue.AccountFilter{By: []queue.Dimension{queue.ByDay}})
	if err != nil || len(got) != 1 || got[0].Usage.OutputTokens != 1000 || got[0].Day != "1970-01-01" {
		t.Errorf("accounts %+v, %v", got, err)
	}
}

// TestPrices: agents have prices of their own, a balance pays for what there is enough
// for, and what has no price is always paid.
func TestPrices(t *testing.T) {
	s := openTemp(t)
	if got := s.Prices(); got.Run != 1 {
		t.Fatalf("prices %+v, want a credit for each run", got)
	}
	s.SetPrices(queue.Prices{Run: 2, Agents: map[job.AgentID]int64{"dear": 5, "free": 0}})
	var entries []queue.Entry
	for _, agent := range []job.AgentID{"dear", "", "free", "dear", ""} {
		entries = append(entries, queue.Entry{ID: job.NewID(), Spec: job.Spec{Name: job.Name(job.NewID()), Tenant: "a", Agent: agent}})
	}
	if err := s.Enqueue(t.Context(), queue.Batch{ID: job.NewBatchID()}, entries); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), queue.TopUp{Tenant: "a", Credits: 8, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), queue.ClaimSpec{Holder: "me", Max: 9, Now: time.Now(), Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var got []job.AgentID
	for _, e := range claims.Entries {
		got = append(got, e.Spec.Agent)
	}
	if !slices.Equal(got, []job.AgentID{"dear", "", "free"}) {
		t.Errorf("claimed those of %q, want the first three: 5, 2 and 0 of 8 credits", got)
	}
	list, err := s.Balances(t.Context())
	if err != nil || len(list) != 1 || list[0].Left() != 1 {
		t.Errorf("balances %+v (%v), want one with 1 credit left", list, err)
	}
}
