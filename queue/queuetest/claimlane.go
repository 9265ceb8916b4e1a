package queuetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// lanes returns the first entry of each lane of a batch.
func (e *env) lanes(now time.Time, batch job.BatchID) []string {
	e.Helper()
	var list []string
	for _, l := range e.heads(queue.HeadsSpec{Batch: batch, Each: 1, Now: now}).Lanes {
		only := ""
		if l.Lane.Only != "" {
			only = "!"
		}
		list = append(list, fmt.Sprintf("%s/%d:%s%s", l.Lane.Tenant, l.Lane.Priority, only, e.get(l.Heads[0].ID).Spec.Name))
	}
	return slices.Sorted(slices.Values(list))
}

func (e *env) wantLanes(what string, now time.Time, batch job.BatchID, want string) {
	e.Helper()
	if got := strings.Join(e.lanes(now, batch), " "); got != want {
		e.Errorf("%s: heads are %q, want %q", what, got, want)
	}
}

// claimScopes: what is shared, of a private batch, and for programs outside is
// claimed apart.
func claimScopes(e *env) {
	work := func(entry *queue.Entry) { entry.Spec.Type = job.External }
	submit := func(b queue.Batch, entries ...queue.Entry) {
		e.Helper()
		if err := e.store.Enqueue(e.ctx, b, entries); err != nil {
			e.Fatal(err)
		}
	}
	private, other := newBatch("private"), newBatch("other")
	private.Private, other.Private = true, true
	e.enqueue(newEntry("shared", duplicate(job.Serialize, "k")), newEntry("outside", work))
	submit(private, newEntry("mine"), newEntry("outside-too", work), newEntry("waits", duplicate(job.Serialize, "k"), priority(3)))
	submit(other, newEntry("theirs", deadline(epoch)))
	list, err := e.store.Batches(e.ctx, "")
	if err != nil {
		e.Fatal(err)
	}
	wantSame(e, "batches", list, []queue.Batch{other, private, e.batch})

	e.wantLanes("what is shared", epoch, "", "default/0:shared")
	e.wantLanes("a private batch", epoch, private.ID, "default/0:!shared default/0:mine")
	e.wantLanes("a shared batch", epoch, e.batch.ID, "")
	if _, err := e.store.Claim(e.ctx, queue.ClaimSpec{Batch: private.ID, External: true, Max: 1, Now: epoch}); err == nil {
		e.Error("external work of a private batch can be claimed")
	}
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Batch: private.ID, Max: 9, Now: epoch, Lease: lease})
	if got := strings.Join(slices.Sorted(slices.Values(names(c.Entries))), " "); got != "mine shared" {
		e.Errorf("claimed %s of the private batch", got)
	}
	for _, entry := range c.Entries {
		e.apply(queue.Release{ID: entry.ID, Fence: entry.Fence, Now: epoch, RunnableAt: epoch})
	}
	c = e.claimAs(queue.ClaimSpec{Holder: "tester", External: true, Max: 9, Now: epoch, Lease: lease})
	if got := strings.Join(names(c.Entries), " "); len(c.Entries) != 2 || !strings.Contains(got, "outside-too") {
		e.Errorf("claimed %s for programs outside", got)
	}
	// They are not this process's, so its end is not theirs.
	e.claimOne(epoch)
	e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}})
	if _, held := e.list(queue.Filter{States: []job.EntryState{job.Dispatched}}); held != 2 {
		e.Errorf("%d are held after the scheduler has come back, want the external ones", held)
	}
	e.apply(queue.Reclaim{Now: epoch.Add(2 * lease), Lapsed: true})
	for _, entry := range c.Entries {
		e.wantState(entry.ID, job.Queued) // after its lease
	}

	e.apply(queue.Adopt{})
	if c := e.claim(9, epoch); len(c.Expired) != 1 || strings.Join(names(c.Entries), " ") != "shared mine" {
		e.Errorf("got %s of what was adopted, want shared and mine, and that theirs has expired", show(c))
	}
	e.wantLanes("a batch that was private", epoch, private.ID, "")
	late := newEntry("late")
	submit(private, late)
	if c := e.claim(9, epoch); len(c.Entries) != 1 || c.Entries[0].ID != late.ID {
		e.Errorf("claimed %v, want what came to the batch after it was shared", names(c.Entries))
	}
}

// claimSetPrivate: what is left of a batch is claimed by whom it is now, what was
// held or claimed before as well.
func claimSetPrivate(e *env) {
	submit := func(entries ...queue.Entry) {
		e.Helper()
		if err := e.store.Enqueue(e.ctx, e.batch, entries); err != nil {
			e.Fatal(err)
		}
	}
	claim := func(b job.BatchID) []queue.Entry {
		e.Helper()
		return e.claimAs(queue.ClaimSpec{Holder: "tester", Batch: b, Max: 9, Now: epoch, Lease: lease}).Entries
	}
	other := newBatch("other")
	if err := e.store.Enqueue(e.ctx, other, []queue.Entry{newEntry("theirs")}); err != nil {
		e.Fatal(err)
	}
	submit(newEntry("claimed", priority(9)))
	running := e.claimOne(epoch)
	kept := newEntry("held", held(job.HeldForNeeds))
	submit(newEntry("queued"), kept)
	e.refuse(queue.ErrNotFound, queue.SetPrivate{ID: "nothing", Private: true})

	e.apply(queue.SetPrivate{ID: e.batch.ID, Private: true, Waiting: "stopped"})
	if got := claim(""); strings.Join(names(got), " ") != "theirs" {
		e.Errorf("claimed %v of what is shared, want theirs", names(got))
	}
	for name, want := range map[job.Name]string{"queued": "stopped", "held": "held for needs", "claimed": ""} {
		if list, _ := e.list(queue.Filter{Name: name}); len(list) != 1 || list[0].Waiting != want {
			e.Errorf("%s: %s, want it to wait for %q", name, show(list), want)
		}
	}
	e.apply(queue.Release{ID: running.ID, Fence: running.Fence, Now: epoch, RunnableAt: epoch}, queue.Ready{ID: kept.ID, Now: epoch})
	submit(newEntry("late"))
	if got := claim(""); len(got) != 0 {
		e.Errorf("claimed %v of what is shared, want nothing", names(got))
	}
	e.apply(queue.SetPrivate{ID: e.batch.ID})
	if got := claim(e.batch.ID); len(got) != 0 {
		e.Errorf("claimed %v of a batch that is shared again", names(got))
	}
	if got := claim(""); len(got) != 4 {
		e.Errorf("claimed %v, want claimed, queued, held and late", names(got))
	}
	e.check()
}

// claimNone: a claim of none changes nothing but what is overdue.
func claimNone(e *env) {
	e.enqueueOne("a")
	late := e.enqueueOne("late", deadline(epoch))
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Now: epoch, Lease: lease})
	if len(c.Entries) != 0 || !slices.Equal(c.Expired, []job.ID{late}) {
		e.Errorf("got %s", show(c))
	}
	if _, err := e.store.Claim(e.ctx, queue.ClaimSpec{Holder: "tester", Now: epoch, Max: -1}); err == nil {
		e.Error("a claim of -1 is no error")
	}
}

// reclaimFences takes back what is named, and passes over what is not held.
func reclaimFences(e *env) {
	for _, name := range []string{"a", "b", "c", "d"} {
		e.enqueueOne(name)
	}
	held := e.claim(4, epoch).Entries
	e.begin(held[0], epoch)
	e.apply(queue.Release{ID: held[3].ID, Fence: held[3].Fence, Now: epoch, RunnableAt: epoch.Add(time.Hour)})
	e.apply(queue.Reclaim{Now: epoch, Fences: []job.Fence{held[2].Fence, held[3].Fence, 999, held[0].Fence, held[0].Fence}, Message: "gone"})
	e.wantState(held[1].ID, job.Dispatched)
	for _, i := range []int{0, 2} {
		if got := e.wantState(held[i].ID, job.Queued); got.Waiting != "gone" || got.Holder != "" {
			e.Errorf("taken back: %s", show(got))
		}
	}
	if got := e.wantState(held[3].ID, job.Queued); got.Waiting != "" || !got.RunnableAt.Equal(epoch.Add(time.Hour)) {
		e.Errorf("an entry that was not held: %s", show(got))
	}
	if a := e.attempts(held[0].ID)[0]; !a.Lost || a.Outcome == nil || a.Outcome.Class != job.Crash {
		e.Errorf("its attempt: %s", show(a))
	}
}
