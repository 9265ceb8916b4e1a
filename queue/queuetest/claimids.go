package queuetest

import (
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// claimIDs: of the entries that are asked for by id those are claimed that can be, in
// the order in which they were asked for.
func claimIDs(e *env) {
	ids := map[string]job.ID{}
	add := func(name string, options ...func(*queue.Entry)) { ids[name] = e.enqueueOne(name, options...) }
	for _, name := range []string{"a", "b", "c", "d"} {
		add(name)
	}
	add("ahead", runnableAt(epoch.Add(time.Second)))
	add("overdue", deadline(epoch))
	add("in time", deadline(epoch.Add(time.Second)), priority(-9))
	add("held", held(job.HeldForNeeds))
	add("outside", func(x *queue.Entry) { x.Spec.Type = job.External })
	add("first", duplicate(job.Serialize, "k"))
	add("waits", duplicate(job.Serialize, "k"))
	add("cancelled")
	e.apply(queue.Cancel{ID: ids["cancelled"], Now: epoch})
	claim := func(spec queue.ClaimSpec, of ...string) queue.Claims {
		e.Helper()
		for _, name := range of {
			id, ok := ids[name]
			if !ok {
				id = "nobody"
			}
			spec.IDs = append(spec.IDs, id)
		}
		spec.Holder, spec.Now, spec.Lease = "tester", epoch, lease
		return e.claimAs(spec)
	}
	c := claim(queue.ClaimSpec{}, "in time", "c", "nobody", "ahead", "overdue", "c", "held", "outside", "waits", "a", "cancelled", "first")
	wantSame(e, "claimed", names(c.Entries), []string{"in time", "c", "a", "first"})
	if !slices.Equal(c.Expired, []job.ID{ids["overdue"]}) || !c.NextAt.IsZero() {
		e.Errorf("expired %v, next %v; want what is overdue, and zero", c.Expired, c.NextAt)
	}
	for i, x := range c.Entries {
		wantSame(e, "claimed entry as stored", e.get(x.ID), x)
		if i > 0 && x.Fence <= c.Entries[i-1].Fence || x.Holder != "tester" || !x.LeaseUntil.Equal(epoch.Add(lease)) {
			e.Errorf("claimed %s", show(x))
		}
	}
	wantSame(e, "claimed again", names(claim(queue.ClaimSpec{}, "in time", "c", "a", "first", "waits").Entries), []string{})
	wantSame(e, "external", names(claim(queue.ClaimSpec{External: true}, "b", "outside").Entries), []string{"outside"})
	c = claim(queue.ClaimSpec{Count: true}, "d")
	if wantSame(e, "claimed", names(c.Entries), []string{"d"}); c.Ready[job.Standard].Depth != 1 {
		e.Errorf("ready: %s, want b", show(c.Ready))
	}
	for what, spec := range map[string]queue.ClaimSpec{
		"a number": {Max: 1}, "a filter": {Admit: func(*queue.Entry) bool { return true }},
	} {
		spec.IDs, spec.Now = []job.ID{ids["b"]}, epoch
		if _, err := e.store.Claim(e.ctx, spec); err == nil {
			e.Errorf("a claim by ids with %s is no error", what)
		}
	}
	e.wantState(ids["b"], job.Queued)
}

// claimIDsOfBatch: of a private batch, those of other batches can be claimed that it
// waits for.
func claimIDsOfBatch(e *env) {
	private := newBatch("private")
	private.Private = true
	ahead, other := e.enqueueOne("ahead", duplicate(job.Serialize, "k")), e.enqueueOne("other")
	mine, waits := newEntry("mine"), newEntry("waits", duplicate(job.Serialize, "k"))
	if err := e.store.Enqueue(e.ctx, private, []queue.Entry{mine, waits}); err != nil {
		e.Fatal(err)
	}
	ids := []job.ID{waits.ID, other, mine.ID, ahead}
	claim := func(b job.BatchID) []string {
		e.Helper()
		return names(e.claimAs(queue.ClaimSpec{Holder: "tester", Batch: b, IDs: ids, Now: epoch, Lease: lease}).Entries)
	}
	wantSame(e, "of a batch that is shared", claim(e.batch.ID), []string{})
	wantSame(e, "of the private batch", claim(private.ID), []string{"mine", "ahead"})
	wantSame(e, "of what is shared", claim(""), []string{"other"})
	c := e.get(ahead)
	e.apply(queue.Finish{ID: ahead, Fence: c.Fence, Now: epoch, Exit: job.ExitSucceeded})
	wantSame(e, "whose turn has come", claim(private.ID), []string{"waits"})
}
