package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// alternating is a Chooser that takes the lanes in turn.
type alternating struct {
	heads map[job.Lane]job.ID
	turn  int
	stale int // how often Stale was asked
	taken []job.ID
}

func (a *alternating) Stale() (bool, []job.Lane) {
	a.stale++
	return true, nil
}

func (a *alternating) Head(l job.Lane, e *queue.Entry) {
	delete(a.heads, l)
	if e != nil {
		a.heads[l] = e.ID
	}
}

func (a *alternating) Next() (job.Lane, bool) {
	for range 2 {
		l := job.Lane{Tenant: []job.Tenant{"a", "b"}[a.turn%2]}
		a.turn++
		if a.heads[l] != "" {
			return l, true
		}
	}
	return job.Lane{}, false
}

func (a *alternating) Taken(e *queue.Entry) { a.taken = append(a.taken, e.ID) }

// TestLongChoice follows a Chooser through several transactions: it is asked
// once what is stale, each entry is looked at once and in its turn, although
// others write in between.
func TestLongChoice(t *testing.T) {
	s := openTemp(t)
	ctx, b := t.Context(), queue.Batch{ID: "b"}
	n := 2*sqlite.MaxTurn + 10
	var all []queue.Entry
	for i := range n {
		all = append(all, named(fmt.Sprintf("j%05d", i)))
		all[i].ID, all[i].Spec.Tenant = job.ID(all[i].Spec.Name), []job.Tenant{"a", "b"}[i%2]
	}
	if err := s.Enqueue(ctx, b, all); err != nil {
		t.Fatal(err)
	}
	asked, before := 0, s.Commits()
	written := make(chan error, 1)
	choice := &alternating{heads: map[job.Lane]job.ID{}}
	c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "h", Max: 2, Now: time.Now(), Lease: time.Hour, Chooser: choice, Admit: func(e *queue.Entry) bool {
		if want := all[asked].ID; e.ID != want {
			t.Fatalf("looked at %s, want %s", e.ID, want)
		}
		if asked++; asked == 1 {
			// The head that the Chooser knows when the next turn begins goes in between.
			go func() { written <- s.Apply(ctx, queue.Cancel{ID: all[sqlite.MaxTurn].ID, Now: time.Now()}) }()
		}
		if asked == sqlite.MaxTurn {
			asked++
		}
		return asked >= n-1
	}})
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Entries) != 2 || len(choice.taken) != 2 || c.Entries[0].ID != choice.taken[0] || asked != n {
		t.Errorf("claimed %d entries, told of %v, after %d candidates", len(c.Entries), choice.taken, asked)
	}
	if turns := s.Commits() - before; choice.stale != 1 || turns < 2 || len(c.Skipped) != 2 {
		t.Errorf("asked %d times what is stale, in %d transactions; skipped %v", choice.stale, turns, c.Skipped)
	}
}
