package queuetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// choose claims with a picker that knows nothing yet.
func (e *env) choose(p *picker, spec queue.ClaimSpec) queue.Claims {
	e.Helper()
	p.all, p.now = true, spec.Now
	spec.Holder, spec.Lease, spec.Chooser = "tester", lease, p
	return e.claimAs(spec)
}

// lanes returns the heads that a claim of the scope tells of, by their lanes.
func (e *env) lanes(now time.Time, scope queue.ClaimSpec) []string {
	e.Helper()
	var p picker
	scope.Now, scope.Max = now, 0
	e.choose(&p, scope)
	var list []string
	for l, head := range p.heads {
		only := ""
		if l.Only != "" {
			only = "!"
		}
		list = append(list, fmt.Sprintf("%s/%d:%s%s", l.Tenant, l.Priority, only, head.Spec.Name))
	}
	return slices.Sorted(slices.Values(list))
}

func (e *env) wantLanes(what string, now time.Time, scope queue.ClaimSpec, want string) {
	e.Helper()
	if got := strings.Join(e.lanes(now, scope), " "); got != want {
		e.Errorf("%s: heads are %q, want %q", what, got, want)
	}
}

// chooserOrder: the lanes come in the order that the Chooser wants, each in its
// own, and what it is told is true at each step.
func chooserOrder(e *env) {
	for _, name := range []string{"a1", "b1", "c1", "a2", "b2", "a3"} {
		e.enqueueOne(name, tenant(job.Tenant(name[:1])))
	}
	e.enqueueOne("a-high", tenant("a"), priority(7))
	e.enqueueOne("later", tenant("d"), runnableAt(epoch.Add(time.Minute)))
	backwards := &picker{less: func(x, y queue.Entry) bool {
		return x.Spec.Tenant > y.Spec.Tenant || x.Spec.Tenant == y.Spec.Tenant && x.Spec.Priority < y.Spec.Priority
	}}
	c := e.choose(backwards, queue.ClaimSpec{Max: 5, Now: epoch})
	if got := strings.Join(names(c.Entries), " "); got != "c1 b1 b2 a1 a2" {
		e.Fatalf("claimed %s", got)
	}
	for i, entry := range c.Entries {
		if backwards.taken[i] != entry.ID {
			e.Errorf("taken are %v, want those that were claimed, in their order", backwards.taken)
		}
		wantSame(e, "claimed entry as stored", e.get(entry.ID), entry)
	}
	slices.Sort(backwards.told[:5])
	if got := strings.Join(backwards.told, " "); got != "a-high a1 b1 c1 later - b2 - a2 a3" {
		e.Errorf("told %s", got)
	}
	if len(c.Skipped) != 0 || !c.NextAt.Equal(epoch.Add(time.Minute)) {
		e.Errorf("got %s, want no lane skipped and the head that lies ahead as the next", show(c))
	}
	// It knows the lane from before: the store reads it when it is chosen.
	known := &picker{heads: map[job.Lane]queue.Entry{{Tenant: "a"}: e.get(backwards.heads[job.Lane{Tenant: "a"}].ID)}, now: epoch}
	c = e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 5, Now: epoch, Lease: lease, Chooser: known})
	if got := strings.Join(names(c.Entries), " "); got != "a3" || strings.Join(known.told, " ") != "-" || !c.NextAt.IsZero() {
		e.Errorf("claimed %q, told %q, next %v; want a3, then nothing more of that lane", got, known.told, c.NextAt)
	}
	// What it knows may be over.
	gone := &picker{heads: map[job.Lane]queue.Entry{{Tenant: "a"}: known.heads[job.Lane{}], {Tenant: "d"}: {RunnableAt: epoch}}, now: epoch}
	if c := e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 5, Now: epoch, Lease: lease, Chooser: gone}); len(c.Entries) != 0 {
		e.Errorf("claimed %v of lanes without a runnable head", names(c.Entries))
	}
	if want := map[string]job.ID{fmt.Sprintf("%+v", job.Lane{Tenant: "d"}): gone.heads[job.Lane{Tenant: "d"}].ID}; !maps.Equal(gone.known(), want) {
		e.Errorf("it knows %v, want the head that lies ahead", gone.known())
	}
}

// chooserSkips: what is not admitted is passed over, and its lane is named.
func chooserSkips(e *env) {
	for _, name := range []string{"a-no", "a-yes", "a-no-2", "b-no", "c-yes"} {
		e.enqueueOne(name, tenant(job.Tenant(name[:1])))
	}
	admit := func(x *queue.Entry) bool { return strings.Contains(string(x.Spec.Name), "yes") }
	first := &picker{less: func(x, y queue.Entry) bool { return x.Spec.Tenant < y.Spec.Tenant }}
	c := e.choose(first, queue.ClaimSpec{Max: 9, Now: epoch, Admit: admit})
	if got := strings.Join(names(c.Entries), " "); got != "a-yes c-yes" || len(first.taken) != 2 {
		e.Errorf("claimed %s, taken %v", got, first.taken)
	}
	wantSame(e, "skipped lanes", c.Skipped, []job.Lane{{Tenant: "a"}, {Tenant: "b"}})
	if len(first.heads) != 0 {
		e.Errorf("it knows %v, want that nothing is left for this claim", first.known())
	}
	again := &picker{stale: c.Skipped, now: epoch}
	c = e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 9, Now: epoch, Lease: lease, Chooser: again})
	if got := slices.Sorted(slices.Values(names(c.Entries))); !slices.Equal(got, []string{"a-no", "a-no-2", "b-no"}) {
		e.Errorf("claimed %v of the lanes that were skipped", got)
	}
}

// chooserHeads follows the heads through all that can change them.
func chooserHeads(e *env) {
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	var all queue.ClaimSpec
	e.wantLanes("an empty queue", epoch, all, "")
	e.enqueueOne("one")
	e.enqueueOne("two", runnableAt(at(time.Second)))
	ahead := e.enqueueOne("ahead", priority(1), runnableAt(at(time.Hour)))
	e.wantLanes("two lanes", epoch, all, "default/0:one default/1:ahead")
	early := e.enqueueOne("early", runnableAt(at(-time.Second)))
	e.wantLanes("an earlier one", epoch, all, "default/0:early default/1:ahead")
	e.apply(queue.Cancel{ID: early, Now: epoch}, queue.Cancel{ID: ahead, Now: epoch})
	e.wantLanes("cancelled", epoch, all, "default/0:one")
	c := e.claimOne(epoch)
	e.wantLanes("claimed", epoch, all, "default/0:two")
	e.apply(queue.Release{ID: c.ID, Fence: c.Fence, Now: epoch, RunnableAt: at(time.Minute)})
	e.wantLanes("released for later", epoch, all, "default/0:two")
	c = e.claimOne(at(time.Second))
	e.wantLanes("the other claimed", epoch, all, "default/0:one")
	e.apply(queue.Finish{ID: c.ID, Fence: c.Fence, Now: epoch, Retry: queue.Retry{RunnableAt: at(2 * time.Second)}})
	e.wantLanes("to be retried", epoch, all, "default/0:two")
	c = e.claimOne(at(time.Minute))
	e.apply(queue.Reclaim{Now: at(3 * time.Second), All: true})
	e.wantLanes("reclaimed", epoch, all, "default/0:two")
	e.apply(queue.Rebase{Now: epoch, After: at(30 * time.Second)})
	e.wantLanes("rebased", epoch, all, "default/0:one")

	first := e.enqueueOne("first", tenant("t"), priority(2), duplicate(job.Serialize, "k"), deadline(at(time.Minute)))
	e.enqueueOne("second", tenant("t"), priority(5), duplicate(job.Serialize, "k"))
	e.enqueueOne("third", tenant("t"), priority(9), duplicate(job.Serialize, "k"))
	e.wantLanes("a line", epoch, all, "default/0:one t/2:first")
	// Of what expires, a Chooser is told although it asked for nothing.
	p := &picker{now: at(time.Minute)}
	got := e.claimAs(queue.ClaimSpec{Now: at(time.Minute), Chooser: p})
	if want := map[string]job.ID{fmt.Sprintf("%+v", job.Lane{Tenant: "t", Priority: 5}): p.heads[job.Lane{Tenant: "t", Priority: 5}].ID}; !maps.Equal(p.known(), want) ||
		!slices.Equal(got.Expired, []job.ID{first}) || !slices.Contains(p.told, "-") || !slices.Contains(p.told, "second") {
		e.Errorf("told %v, expired %v; want that first has gone and second is the head", p.told, got.Expired)
	}
	e.wantLanes("expired", epoch, all, "default/0:one t/5:second")
	e.enqueueOne("latest", tenant("t"), duplicate(job.LatestWins, "k"))
	e.wantLanes("superseded", epoch, all, "default/0:one t/0:latest")
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

	shared, outside, own := queue.ClaimSpec{}, queue.ClaimSpec{External: true}, queue.ClaimSpec{Batch: private.ID}
	e.wantLanes("what is shared", epoch, shared, "default/0:shared")
	e.wantLanes("external work", epoch, outside, "default/0:outside")
	e.wantLanes("a private batch", epoch, own, "default/0:!shared default/0:mine")
	e.wantLanes("a shared batch", epoch, queue.ClaimSpec{Batch: e.batch.ID}, "")
	if _, err := e.store.Claim(e.ctx, queue.ClaimSpec{Batch: private.ID, External: true, Max: 1, Now: epoch}); err == nil {
		e.Error("external work of a private batch can be claimed")
	}
	p := &picker{less: func(x, y queue.Entry) bool { return x.Spec.Name > y.Spec.Name }}
	own.Max, own.Now = 9, epoch
	c := e.choose(p, own)
	if got := strings.Join(names(c.Entries), " "); got != "shared mine" {
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
	e.apply(queue.Reclaim{Now: epoch, All: true})
	if _, held := e.list(queue.Filter{States: []job.EntryState{job.Dispatched}}); held != 2 {
		e.Errorf("%d are held after the scheduler has come back, want the external ones", held)
	}
	e.apply(queue.Reclaim{Now: epoch.Add(2 * lease)})
	e.wantLanes("external work after its lease", epoch.Add(2*lease), outside, "default/0:outside")

	e.apply(queue.Adopt{})
	if c := e.claim(9, epoch); len(c.Expired) != 1 || strings.Join(names(c.Entries), " ") != "shared mine" {
		e.Errorf("got %s of what was adopted, want shared and mine, and that theirs has expired", show(c))
	}
	e.wantLanes("a batch that was private", epoch, queue.ClaimSpec{Batch: private.ID}, "")
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
