package queuetest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (e *env) topUp(t job.Tenant, credits int64) {
	e.Helper()
	e.apply(queue.TopUp{Tenant: t, Credits: credits, By: "ann", Now: epoch})
}

// wantLeft fails the test unless that is what a tenant's balance is.
func (e *env) wantLeft(what string, t job.Tenant, want int64) {
	e.Helper()
	if got := e.balance(t); got.Left() != want {
		e.Fatalf("%s: %d credits are left (%s), want %d", what, got.Left(), show(got), want)
	}
}

func (e *env) balance(t job.Tenant) queue.Balance {
	e.Helper()
	list, err := e.store.Balances(e.ctx)
	if err != nil {
		e.Fatal(err)
	}
	i := slices.IndexFunc(list, func(b queue.Balance) bool { return b.Tenant == t })
	if i < 0 {
		e.Fatalf("tenant %s has no balance: %s", t, show(list))
	}
	return list[i]
}

// history returns what a tenant's credits were added and taken for, the newest first.
func (e *env) history(t job.Tenant) (list []string) {
	e.Helper()
	all, err := e.store.Credits(e.ctx, t, "", 0)
	if err != nil {
		e.Fatal(err)
	}
	for _, c := range all {
		why := c.By
		if c.Job != "" {
			why = fmt.Sprintf("%s/%d", e.get(c.Job).Spec.Name, c.Attempt)
		}
		list = append(list, fmt.Sprintf("%+d %s", c.Credits, why))
	}
	return list
}

// creditTakes: a claim takes a credit for each run and passes over what there is none
// for, also where it chooses many at once; who has no balance is not bounded.
func creditTakes(e *env) {
	e.enqueue(newEntry("free", tenant("b")))
	for i := range 5 {
		e.enqueue(newEntry(fmt.Sprintf("a%d", i), tenant("a"), runnableAt(epoch.Add(time.Duration(i)))))
	}
	e.topUp("a", 3)
	now := epoch.Add(time.Second)
	first := e.claim(2, now).Entries
	e.reopen()
	c := append(first, e.claim(100, now).Entries...)
	if got := names(c); len(got) != 4 || !slices.Contains(got, "free") || slices.Contains(got, "a3") {
		e.Fatalf("claimed %v, want the free one and the first three of a", got)
	}
	e.wantLeft("after the claims", "a", 0)
	waits, _ := e.list(queue.Filter{Tenant: "a", States: []job.EntryState{job.Queued}})
	if ids := []job.ID{waits[0].ID, waits[1].ID}; len(e.claimAs(queue.ClaimSpec{Holder: "tester", IDs: ids, Now: now, Lease: lease}).Entries) != 0 {
		e.Error("a claim by ids got what there are no credits for")
	}
	// What runs to its end has been paid for once, however often its end is told.
	n := e.begin(c[slices.IndexFunc(c, func(x queue.Entry) bool { return x.Spec.Name == "a0" })], now)
	i := slices.IndexFunc(c, func(x queue.Entry) bool { return x.Spec.Name == "a0" })
	done := succeed(c[i], n, now, now)
	e.apply(done)
	e.refuse(queue.ErrFenced, done)
	e.wantLeft("after the end", "a", 0)
	e.topUp("a", 1)
	if got := e.claimable(now); len(got) != 1 {
		e.Fatalf("%v can be claimed after a top-up of one", got)
	}
	// Who asks for it by name gets what there are no credits for, and they are taken.
	e.topUp("a", -1)
	if over := e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 9, Now: now, Lease: lease, OverGrants: true}); len(over.Entries) != 2 {
		e.Fatalf("claimed %v over grants, want two", names(over.Entries))
	}
	e.wantLeft("over grants", "a", -2)
}

// creditGivesBack: a claim that ends without an attempt that counts costs nothing.
func creditGivesBack(e *env) {
	e.topUp("a", 1)
	id := e.enqueueOne("x", tenant("a"))
	for _, tt := range []struct {
		name string
		end  func(c queue.Entry)
		left int64
	}{
		{"released", func(c queue.Entry) {
			e.apply(queue.Release{ID: id, Fence: c.Fence, Now: epoch, RunnableAt: epoch})
		}, 1},
		{"reclaimed before its attempt", func(queue.Entry) { e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}}) }, 1},
		{"reclaimed in its attempt", func(c queue.Entry) {
			e.begin(c, epoch)
			e.reopen()
			e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}, Message: "killed"})
		}, 1},
		{"checkpointed", func(c queue.Entry) {
			e.apply(queue.Finish{ID: id, Fence: c.Fence, Attempt: e.begin(c, epoch), Lost: true, Now: epoch,
				Outcome: job.Outcome{State: job.RunCancelled, Checkpointed: true}, Retry: queue.Retry{RunnableAt: epoch}})
		}, 1},
		{"failed", func(c queue.Entry) {
			e.apply(queue.Finish{ID: id, Fence: c.Fence, Attempt: e.begin(c, epoch), Now: epoch,
				Outcome: job.Outcome{State: job.RunFailed, Class: job.Crash}, Retry: queue.Retry{RunnableAt: epoch}})
		}, 0},
	} {
		c := e.claimOne(epoch)
		e.wantLeft("claimed, to be "+tt.name, "a", 0)
		tt.end(c)
		e.wantLeft(tt.name, "a", tt.left)
	}
	if got := e.claimable(epoch); len(got) != 0 {
		e.Fatalf("%v can be claimed without a credit", got)
	}
	wantSame(e, "history", e.history("a"), []string{"-1 x/3", "+1 ann"})
	e.topUp("a", 2)
	// Refused for good, and cancelled in its attempt, which counts.
	c := e.claimOne(epoch)
	e.apply(queue.Finish{ID: id, Fence: c.Fence, Now: epoch, Exit: job.ExitFailed, DeadLetter: "no"})
	e.wantLeft("without a permit", "a", 2)
	e.enqueueOne("y", tenant("a"))
	c = e.claimOne(epoch)
	e.apply(queue.Cancel{ID: c.ID, Now: epoch}, queue.Finish{ID: c.ID, Fence: c.Fence, Attempt: e.begin(c, epoch), Now: epoch, Exit: job.ExitCancelled,
		Outcome: job.Outcome{State: job.RunCancelled}})
	e.wantLeft("cancelled", "a", 1)
	// Work that a person looks at was done; what a person rejects is done again, for another credit.
	e.enqueueOne("z", tenant("a"))
	c = e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(queue.Await{ID: c.ID, Fence: c.Fence, Attempt: n, Now: epoch, Outcome: job.Outcome{State: job.RunCompleted}, Approval: queue.Approval{Why: "w"}})
	e.apply(queue.Decide{ID: c.ID, Attempt: n, Now: epoch, Retry: &queue.Retry{RunnableAt: epoch}})
	e.wantLeft("rejected", "a", 0)
	if got := e.claimable(epoch); len(got) != 0 {
		e.Fatalf("%v can be claimed without a credit", got)
	}
}

// creditHeads: heads tell what there are too few credits for, and lanes have changed when
// there are enough again.
func creditHeads(e *env) {
	over := func(since uint64) (list []bool, version uint64) {
		e.Helper()
		h, err := e.store.Heads(e.ctx, queue.HeadsSpec{Since: since, Each: 4, Now: epoch})
		if err != nil {
			e.Fatal(err)
		}
		for _, l := range h.Lanes {
			for _, x := range l.Heads {
				list = append(list, x.Over)
			}
		}
		return list, h.Version
	}
	e.enqueueOne("x", tenant("a"))
	e.enqueueOne("free", tenant("b"))
	e.topUp("a", 1)
	e.enqueueOne("y", tenant("a"))
	got, _ := over(0)
	wantSame(e, "with a credit", got, []bool{false, false, false})
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 1, Now: epoch, Lease: lease, Admit: func(x *queue.Entry) bool { return x.Spec.Tenant == "a" }}).Entries[0]
	got, since := over(0)
	wantSame(e, "without", got, []bool{true, false})
	e.apply(queue.Release{ID: c.ID, Fence: c.Fence, Now: epoch, RunnableAt: epoch})
	got, since = over(since)
	wantSame(e, "given back", got, []bool{false, false, false})
	e.topUp("a", -1)
	got, since = over(since)
	wantSame(e, "taken back", got, []bool{true, true, false})
	e.topUp("a", 1)
	got, since = over(since)
	wantSame(e, "topped up", got, []bool{false, false, false})
	e.topUp("a", -1)
	_, since = over(since)
	e.apply(queue.DropBalance{Tenant: "a", By: "ann", Now: epoch})
	got, _ = over(since)
	wantSame(e, "without a balance", got, []bool{false, false, false})
}

func creditRules(e *env) {
	for _, bad := range []queue.Op{
		queue.TopUp{Credits: 1}, queue.TopUp{Tenant: "a"}, queue.TopUp{Tenant: "a", Credits: queue.MaxCredits + 1}, queue.TopUp{Tenant: "a b", Credits: 1},
	} {
		if err := e.store.Apply(e.ctx, bad); err == nil {
			e.Errorf("%s was applied", show(bad))
		}
	}
	e.refuse(queue.ErrIllegalTransition, queue.TopUp{Tenant: "a", Credits: -1, Now: epoch})
	e.refuse(queue.ErrNotFound, queue.DropBalance{Tenant: "a", Now: epoch})
	e.topUp("b", 5)
	e.topUp("a", queue.MaxCredits)
	e.refuse(queue.ErrIllegalTransition, queue.TopUp{Tenant: "a", Credits: 1, Now: epoch})
	e.refuse(queue.ErrIllegalTransition, queue.TopUp{Tenant: "b", Credits: 1, Now: epoch}, queue.TopUp{Tenant: "b", Credits: -7, Now: epoch})
	e.topUp("b", -4)
	want := []queue.Balance{{Tenant: "a", Added: queue.MaxCredits}, {Tenant: "b", Added: 1}}
	for range 2 {
		list, err := e.store.Balances(e.ctx)
		if err != nil {
			e.Fatal(err)
		}
		wantSame(e, "balances", list, want)
		e.reopen()
	}
	wantSame(e, "history", e.history("b"), []string{"-4 ann", "+5 ann"})

	// With a key it counts once, whatever comes between.
	keyed := queue.TopUp{Tenant: "b", Credits: 7, By: "ann", Key: "k", Now: epoch}
	e.apply(keyed)
	e.apply(queue.DropBalance{Tenant: "b", By: "ann", Now: epoch})
	e.reopen()
	e.apply(keyed, keyed)
	e.refuse(queue.ErrExists, queue.TopUp{Tenant: "b", Credits: 8, Key: "k", Now: epoch})
	e.refuse(queue.ErrExists, queue.TopUp{Tenant: "c", Credits: 7, Key: "k", Now: epoch})
	e.refuse(queue.ErrIllegalTransition, queue.TopUp{Tenant: "b", Credits: -7, Key: "refused", Now: epoch})
	e.apply(queue.TopUp{Tenant: "b", Credits: 1, By: "ann", Key: "refused", Now: epoch})
	wantSame(e, "history", e.history("b"), []string{"+1 ann", "-8 ann", "+7 ann", "-4 ann", "+5 ann"})
}

// creditHistory: what was asked for stays, what runs took goes with them; a balance that
// was ended pays nothing back to a later one.
func creditHistory(e *env) {
	e.topUp("a", 9)
	var old queue.Entry
	for i := range 4 {
		e.enqueueOne(fmt.Sprintf("x%d", i), tenant("a"))
		c := e.claimOne(epoch.Add(time.Duration(i) * time.Hour))
		if i == 3 {
			old = c
			break
		}
		now := c.DispatchedAt.Add(time.Minute)
		e.apply(succeed(c, e.begin(c, now), now, now))
		e.topUp("a", 1)
	}
	wantSame(e, "history", e.history("a"), []string{"-1 x3/1", "+1 ann", "-1 x2/1", "+1 ann", "-1 x1/1", "+1 ann", "-1 x0/1", "+9 ann"})
	page, err := e.store.Credits(e.ctx, "a", "", 2)
	if err != nil || len(page) != 2 {
		e.Fatalf("a page of two has %d (%v)", len(page), err)
	}
	if page, err = e.store.Credits(e.ctx, "a", page[1].ID, 3); err != nil || len(page) != 3 || page[0].Credits != -1 || !page[0].At.Equal(epoch.Add(2*time.Hour)) {
		e.Fatalf("the next page is %s (%v)", show(page), err)
	}
	for range 2 {
		if _, err := e.store.Prune(e.ctx, queue.PruneSpec{Before: epoch.Add(2 * time.Hour), Max: 10}); err != nil {
			e.Fatal(err)
		}
		wantSame(e, "history after two hours were forgotten", e.history("a"), []string{"-1 x3/1", "+1 ann", "-1 x2/1", "+1 ann", "+1 ann", "+9 ann"})
	}
	if _, err := e.store.Prune(e.ctx, queue.PruneSpec{Before: epoch.Add(100 * time.Hour), Max: 10}); err != nil {
		e.Fatal(err)
	}
	wantSame(e, "history of what runs", e.history("a"), []string{"-1 x3/1", "+1 ann", "+1 ann", "+1 ann", "+9 ann"})
	e.wantLeft("what was forgotten was taken", "a", 8)

	e.apply(queue.DropBalance{Tenant: "a", By: "bob", Now: epoch})
	e.topUp("a", 2)
	e.apply(queue.Release{ID: old.ID, Fence: old.Fence, Now: epoch, RunnableAt: epoch})
	e.wantLeft("a claim of the balance before", "a", 2)
	wantSame(e, "history", e.history("a")[:2], []string{"+2 ann", "-8 bob"})
}

// creditConserved: after any sequence of claims, ends and restarts, each tenant's balance
// is what was added less one for each attempt that counts and each claim under way, never
// below 0, and the history adds up to it.
func creditConserved(e *env) {
	rapid.Check(e.T, func(r *rapid.T) {
		e := newEnv(e.T, e.open)
		added := map[job.Tenant]int64{"a": 2, "b": 1}
		for t, n := range added {
			e.topUp(t, n)
		}
		tenants := []job.Tenant{"a", "b", "c"} // c has no balance
		now := epoch
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			now = now.Add(time.Second)
			t := rapid.SampledFrom(tenants).Draw(r, "tenant")
			held, _ := e.list(queue.Filter{States: []job.EntryState{job.Dispatched}})
			switch rapid.SampledFrom([]string{"enqueue", "enqueue", "top up", "claim", "claim", "end", "end", "end", "restart", "refused"}).Draw(r, "step") {
			case "enqueue":
				e.batch = newBatch("b")
				e.enqueueOne("x", tenant(t), priority(rapid.IntRange(0, 1).Draw(r, "priority")))
			case "top up":
				if t == "c" {
					continue
				}
				n := int64(rapid.IntRange(-2, 4).Draw(r, "credits"))
				if err := e.store.Apply(e.ctx, queue.TopUp{Tenant: t, Credits: n, Now: now}); err == nil {
					added[t] += n
				}
			case "claim":
				e.claim(rapid.IntRange(1, 4).Draw(r, "most"), now)
			case "restart":
				e.reopen()
				if rapid.Bool().Draw(r, "of the scheduler") {
					e.apply(queue.Reclaim{Now: now, Holders: []string{"tester"}})
				}
			case "refused": // nothing of a transaction that was refused was taken or given back
				for _, c := range held {
					e.refuse(queue.ErrNotFound, queue.Reclaim{Now: now, Fences: []job.Fence{c.Fence}}, queue.Cancel{ID: "nobody"})
				}
			case "end":
				if len(held) == 0 {
					continue
				}
				c := rapid.SampledFrom(held).Draw(r, "ends")
				if rapid.IntRange(0, 3).Draw(r, "without an attempt") == 0 {
					e.apply(queue.Release{ID: c.ID, Fence: c.Fence, Now: now, RunnableAt: now})
					continue
				}
				done := succeed(c, e.begin(c, now), now, now)
				if done.Lost = rapid.Bool().Draw(r, "lost"); done.Lost {
					done.Exit, done.Retry.RunnableAt = "", now
				}
				e.apply(done)
			}
			e.wantConserved(r, added)
		}
		e.close()
	})
}

func (e *env) wantConserved(r *rapid.T, added map[job.Tenant]int64) {
	taken := map[job.Tenant]int64{}
	all, _ := e.list(queue.Filter{})
	for _, x := range all {
		taken[x.Spec.Tenant] += int64(x.Counted)
		if attempts := e.attempts(x.ID); x.State == job.Dispatched && (len(attempts) == 0 || attempts[len(attempts)-1].Ended != nil) {
			taken[x.Spec.Tenant]++
		}
	}
	list, err := e.store.Balances(e.ctx)
	if err != nil {
		r.Fatal(err)
	}
	for _, b := range list {
		sum := int64(0)
		history, err := e.store.Credits(e.ctx, b.Tenant, "", 0)
		if err != nil {
			r.Fatal(err)
		}
		for _, c := range history {
			sum += c.Credits
		}
		if b.Tenant == "c" || b.Added != added[b.Tenant] || b.Left() < 0 || b.Left() != sum {
			r.Fatalf("balance %s, %d were added, the history adds up to %d", show(b), added[b.Tenant], sum)
		}
		if b.Taken != taken[b.Tenant] {
			r.Fatalf("balance %s, and %d runs count or are under way", show(b), taken[b.Tenant])
		}
	}
	if len(list) != len(added) {
		r.Fatalf("balances %s, want one of each of %s", show(list), show(added))
	}
}
