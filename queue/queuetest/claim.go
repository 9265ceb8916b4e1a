package queuetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func claimOrder(e *env) {
	earlier := epoch.Add(-time.Minute)
	sameA, sameB := newEntry("same-1"), newEntry("same-2")
	sameA.ID, sameB.ID = "00000000-0000-7000-8000-000000000002", "00000000-0000-7000-8000-000000000001"
	e.enqueue(
		newEntry("low", priority(-1)), sameA, sameB,
		newEntry("high-late", priority(5)), newEntry("high-early", priority(5), runnableAt(earlier)),
		newEntry("zero-time", runnableAt(time.Time{})))
	want := []string{"high-early", "high-late", "zero-time", "same-2", "same-1", "low"}
	var got []string
	for range want {
		got = append(got, string(e.claimOne(epoch).Spec.Name))
	}
	if !slices.Equal(got, want) {
		e.Fatalf("claimed one by one %v, want %v", got, want)
	}
	e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}})
	// All are runnable at the same moment now.
	c := e.claim(4, epoch)
	if got := names(c.Entries)[:2]; len(c.Entries) != 4 || !slices.Contains(got, "high-early") || !slices.Contains(got, "high-late") {
		e.Fatalf("claimed four at once %v, want the two high ones first", names(c.Entries))
	}
	for _, entry := range c.Entries {
		wantSame(e, "claimed entry as stored", e.get(entry.ID), entry)
		if entry.State != job.Dispatched || entry.Holder != "tester" || entry.Fence == 0 ||
			!entry.LeaseUntil.Equal(epoch.Add(lease)) || !entry.DispatchedAt.Equal(epoch) {
			e.Errorf("claimed entry %s", show(entry))
		}
	}
	if left := e.claim(10, epoch); len(left.Entries) != 2 {
		e.Fatalf("claimed %v of the two left", names(left.Entries))
	}
}

func claimInvisible(e *env) {
	later := epoch.Add(time.Second)
	e.enqueueOne("later", priority(9), runnableAt(later))
	e.enqueueOne("now", runnableAt(epoch))
	if c := e.claim(5, epoch); !slices.Equal(names(c.Entries), []string{"now"}) {
		e.Fatalf("claimed %v, want only what is runnable", names(c.Entries))
	}
	if c := e.claim(5, later.Add(-time.Millisecond)); len(c.Entries) != 0 {
		e.Fatalf("claimed %v before its time", names(c.Entries))
	}
	if c := e.claim(5, later); !slices.Equal(names(c.Entries), []string{"later"}) {
		e.Fatalf("claimed %v at its time", names(c.Entries))
	}
}

func claimExpires(e *env) {
	past := e.enqueueOne("past", deadline(epoch.Add(-time.Second)))
	exact := e.enqueueOne("exact", deadline(epoch))
	hidden := e.enqueueOne("hidden", deadline(epoch), runnableAt(epoch.Add(time.Hour)))
	alive := e.enqueueOne("alive", deadline(epoch.Add(time.Millisecond)))
	c := e.claim(1, epoch)
	if !slices.Equal(names(c.Entries), []string{"alive"}) {
		e.Errorf("claimed %v, want alive", names(c.Entries))
	}
	got, want := slices.Sorted(slices.Values(c.Expired)), slices.Sorted(slices.Values([]job.ID{past, exact, hidden}))
	if !slices.Equal(got, want) {
		e.Errorf("expired %v, want %v", got, want)
	}
	for _, id := range want {
		if entry := e.wantState(id, job.Expired); entry.CompletedAt == nil || !entry.CompletedAt.Equal(epoch) {
			e.Errorf("expired entry has completed_at %v, want %v", entry.CompletedAt, epoch)
		}
		e.refuse(queue.ErrIllegalTransition, queue.Cancel{ID: id, Now: epoch})
	}
	// A deadline is for being dispatched: who holds it already may go on.
	if c := e.claim(1, epoch.Add(time.Hour)); len(c.Expired) != 0 {
		e.Errorf("expired %v, which is dispatched", c.Expired)
	}
	e.wantState(alive, job.Dispatched)
}

func claimAdmit(e *env) {
	for n := range 40 {
		e.enqueueOne(fmt.Sprintf("j%02d", n), runnableAt(epoch.Add(time.Duration(n)*time.Millisecond)))
	}
	now := epoch.Add(time.Minute)
	before, _ := e.list(queue.Filter{})
	var asked []string
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 3, Now: now, Lease: lease, Admit: func(entry *queue.Entry) bool {
		asked = append(asked, string(entry.Spec.Name))
		return len(asked)%10 == 0
	}})
	if want := []string{"j09", "j19", "j29"}; !slices.Equal(names(c.Entries), want) {
		e.Fatalf("claimed %v, want %v", names(c.Entries), want)
	}
	if len(asked) != 30 || !slices.IsSorted(asked) {
		e.Errorf("asked for %v, want the first 30 in order, each once", asked)
	}
	after, _ := e.list(queue.Filter{States: []job.EntryState{job.Queued}})
	skipped := slices.DeleteFunc(before, func(b queue.Entry) bool {
		return slices.ContainsFunc(c.Entries, func(x queue.Entry) bool { return x.ID == b.ID })
	})
	wantSame(e, "what was not claimed", after, skipped)
	none := e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 3, Now: now, Lease: lease, Admit: func(*queue.Entry) bool { return false }})
	if len(none.Entries) != 0 {
		e.Errorf("claimed %v, which was not admitted", names(none.Entries))
	}
}

func claimOneBatch(e *env) {
	e.batch.Private = true
	e.enqueueOne("mine", deadline(epoch.Add(time.Hour)))
	other := newBatch("other.yaml")
	other.Private = true
	foreign := []queue.Entry{
		newEntry("foreign", priority(9)), newEntry("foreign-late", deadline(epoch)), newEntry("foreign-soon", runnableAt(epoch.Add(time.Second))),
	}
	if err := e.store.Enqueue(e.ctx, other, foreign); err != nil {
		e.Fatal(err)
	}
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Batch: e.batch.ID, Max: 9, Now: epoch, Lease: lease})
	if !slices.Equal(names(c.Entries), []string{"mine"}) || len(c.Expired) != 0 || !c.NextAt.IsZero() {
		e.Fatalf("got %s, want only mine and nothing of the other batch", show(c))
	}
	shared := newBatch("shared.yaml")
	if err := e.store.Enqueue(e.ctx, shared, []queue.Entry{newEntry("shared")}); err != nil {
		e.Fatal(err)
	}
	for _, id := range []job.BatchID{"unknown", shared.ID} {
		if c := e.claimAs(queue.ClaimSpec{Holder: "tester", Batch: id, Max: 9, Now: epoch, Lease: lease}); len(c.Entries) != 0 {
			e.Fatalf("claimed %v of a batch that is no private one", names(c.Entries))
		}
	}
	if c := e.claim(9, epoch); !slices.Equal(names(c.Entries), []string{"shared"}) || len(c.Expired) != 0 {
		e.Fatalf("got %s, want only what is shared", show(c))
	}
	c = e.claimAs(queue.ClaimSpec{Holder: "tester", Batch: other.ID, Max: 9, Now: epoch, Lease: lease})
	if !slices.Equal(names(c.Entries), []string{"foreign"}) || len(c.Expired) != 1 || !c.NextAt.Equal(epoch.Add(time.Second)) {
		e.Fatalf("got %s of the other batch", show(c))
	}
}

func claimNextAt(e *env) {
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	if c := e.claim(1, epoch); !c.NextAt.IsZero() {
		e.Fatalf("an empty queue has next %v", c.NextAt)
	}
	e.enqueueOne("ready")
	e.enqueueOne("retry-low", priority(-3), runnableAt(at(20*time.Second)))
	e.enqueueOne("retry-high", priority(3), runnableAt(at(30*time.Second)))
	steps := []struct {
		what string
		do   func()
		now  time.Duration
		want time.Duration
	}{
		{"the earliest of all priorities", func() {}, 0, 20 * time.Second},
		{"not a moment that has come", func() {}, 20 * time.Second, 30 * time.Second},
		{"a deadline", func() { e.enqueueOne("dies", runnableAt(at(time.Hour)), deadline(at(25*time.Second))) }, 20 * time.Second, 25 * time.Second},
		{"after the deadline", func() {}, 25 * time.Second, 30 * time.Second},
		{"not the claimed one's deadline", func() { e.enqueueOne("taken", deadline(at(27*time.Second))) }, 26 * time.Second, 30 * time.Second},
	}
	for _, s := range steps {
		s.do()
		if c := e.claim(9, at(s.now)); !c.NextAt.Equal(at(s.want)) {
			e.Fatalf("%s: at +%v next is %v, want +%v", s.what, s.now, c.NextAt, s.want)
		}
	}
	// Of an entry that was skipped, its deadline counts.
	e.enqueueOne("skipped", deadline(at(28*time.Second)))
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 9, Now: at(26 * time.Second), Lease: lease, Admit: func(*queue.Entry) bool { return false }})
	if !c.NextAt.Equal(at(28 * time.Second)) {
		e.Fatalf("next is %v, want the skipped one's deadline", c.NextAt)
	}
}

func claimNeverTwice(e *env) {
	const entries, claimers = 120, 12
	var all []queue.Entry
	for n := range entries {
		all = append(all, newEntry(fmt.Sprintf("j%d", n), priority(n%3)))
	}
	e.enqueue(all...)
	var mu sync.Mutex
	holders, fences := map[job.ID]string{}, map[job.Fence]bool{}
	var wg sync.WaitGroup
	for n := range claimers {
		wg.Go(func() {
			holder := fmt.Sprintf("holder-%d", n)
			for {
				c, err := e.store.Claim(e.ctx, queue.ClaimSpec{Holder: holder, Max: 1 + n%4, Now: epoch, Lease: lease})
				if err != nil {
					e.Error(err)
					return
				}
				if len(c.Entries) == 0 {
					return
				}
				mu.Lock()
				for _, entry := range c.Entries {
					if holders[entry.ID] != "" || fences[entry.Fence] || entry.Fence == 0 {
						e.Errorf("%s claimed %s with fence %d; it was %q's", holder, entry.Spec.Name, entry.Fence, holders[entry.ID])
					}
					holders[entry.ID], fences[entry.Fence] = holder, true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(holders) != entries {
		e.Fatalf("%d of %d entries were claimed", len(holders), entries)
	}
	for id, holder := range holders {
		if entry := e.wantState(id, job.Dispatched); entry.Holder != holder {
			e.Errorf("%s is stored as %s's and was given to %s", entry.Spec.Name, entry.Holder, holder)
		}
	}
}

func extendLease(e *env) {
	e.enqueueOne("a")
	e.enqueueOne("b")
	a, b := e.claimOne(epoch), e.claimOne(epoch)
	e.apply(queue.Cancel{ID: b.ID, Now: epoch}, queue.Release{ID: b.ID, Fence: b.Fence, RunnableAt: epoch})
	until := epoch.Add(time.Hour)
	lost, err := e.store.Extend(e.ctx, []job.Fence{b.Fence, a.Fence, 999_999}, until)
	if err != nil {
		e.Fatal(err)
	}
	if !slices.Equal(lost, []job.Fence{b.Fence, 999_999}) {
		e.Errorf("lost %v, want %d and 999999", lost, b.Fence)
	}
	if got := e.get(a.ID).LeaseUntil; got == nil || !got.Equal(until) {
		e.Errorf("lease until %v, want %v", got, until)
	}
	if got := e.get(b.ID); got.LeaseUntil != nil || got.State != job.Queued {
		e.Errorf("a lost claim changed: %s", show(got))
	}
	if lost, err := e.store.Extend(e.ctx, nil, until); err != nil || len(lost) != 0 {
		e.Errorf("extending nothing: %v, %v", lost, err)
	}
}
