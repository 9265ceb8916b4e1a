package queuetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// duplicateBatches: a claim of one batch reaches what it waits for in others,
// through any number of them, and nothing else of theirs.
func duplicateBatches(e *env) {
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	e.batch.Private = true
	batches := map[string]queue.Batch{"one": newBatch("one"), "two": newBatch("two"), "mine": e.batch}
	submit := func(batch string, entries ...queue.Entry) {
		e.Helper()
		if err := e.store.Enqueue(e.ctx, batches[batch], entries); err != nil {
			e.Fatal(err)
		}
	}
	claim := func(now time.Time, want string) queue.Claims {
		e.Helper()
		c := e.claimAs(queue.ClaimSpec{Holder: "tester", Batch: e.batch.ID, Max: 9, Now: now, Lease: lease, Count: true})
		if got := strings.Join(names(c.Entries), " "); got != want {
			e.Fatalf("claimed %q, want %q", got, want)
		}
		return c
	}
	finish := func(c queue.Claims, now time.Time) {
		e.Helper()
		for _, entry := range c.Entries {
			e.apply(succeed(entry, e.begin(entry, now), now, now))
		}
	}
	submit("one", newEntry("head", duplicate(job.Serialize, "k")), newEntry("beside"), newEntry("other-key", duplicate(job.Serialize, "l"), priority(9)))
	submit("two", newEntry("middle", duplicate(job.Serialize, "k"), priority(5)), newEntry("follows", duplicate(job.Coalesce, "k")),
		newEntry("beside"), newEntry("dies", duplicate(job.Serialize, "k"), deadline(at(2*time.Second))))
	submit("mine", newEntry("low", priority(-1)), newEntry("waits", duplicate(job.Serialize, "k")), newEntry("high", priority(1)))
	c := claim(epoch, "high head low")
	if len(c.Ready) != 0 || !c.NextAt.IsZero() {
		e.Errorf("got %s, want nothing else to be ready", show(c))
	}
	claim(epoch, "")
	finish(c, epoch)
	finish(claim(at(time.Second), "middle"), at(time.Second))
	// The head of the line is past its deadline: what waits for it goes on.
	c = claim(at(3*time.Second), "waits")
	if len(c.Expired) != 1 {
		e.Errorf("expired %v, want one", c.Expired)
	}
	finish(c, at(3*time.Second))
	list, total := e.list(queue.Filter{States: []job.EntryState{job.Queued}})
	if total != 3 {
		e.Errorf("left are %v, want what mine did not wait for", names(list))
	}
	// A head that cannot run yet says when it can, and counts when it could.
	submit("one", newEntry("later", duplicate(job.Coalesce, "m"), runnableAt(at(time.Minute)), deadline(at(time.Hour))))
	submit("mine", newEntry("asks", duplicate(job.Coalesce, "m")))
	if c := claim(at(4*time.Second), ""); !c.NextAt.Equal(at(time.Minute)) {
		e.Errorf("next is %v, want when the head can run", c.NextAt)
	}
	c = e.claimAs(queue.ClaimSpec{Holder: "tester", Batch: e.batch.ID, Now: at(time.Minute), Count: true})
	wantSame(e, "ready", c.Ready, map[job.Class]queue.ClassReady{job.Standard: {Depth: 1, Oldest: at(time.Minute)}})
	if !c.NextAt.Equal(at(time.Hour)) {
		e.Errorf("next is %v, want the head's deadline", c.NextAt)
	}
	finish(claim(at(time.Minute), "later"), at(time.Minute))
	if _, total := e.list(queue.Filter{Batch: e.batch.ID, States: []job.EntryState{job.Queued, job.Dispatched}}); total != 0 {
		e.Errorf("%d entries of the batch are unfinished", total)
	}
}

// claimCount counts by class what could be claimed and was not.
func claimCount(e *env) {
	early, late := epoch.Add(-time.Minute), epoch.Add(time.Minute)
	e.enqueue(
		newEntry("a", class(job.Batch), priority(9)), newEntry("b", class(job.Batch), runnableAt(early)), newEntry("c", class(job.Interactive)),
		newEntry("d"), newEntry("e", class(job.Standard), priority(-2)), newEntry("later", runnableAt(late)),
		newEntry("dead", deadline(epoch)), newEntry("head", duplicate(job.Serialize, "k")), newEntry("waits", duplicate(job.Serialize, "k"), class(job.Batch)))
	if c := e.claim(1, early.Add(-time.Hour)); c.Ready != nil {
		e.Errorf("counted without being asked: %s", show(c.Ready))
	}
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Now: epoch, Lease: lease, Count: true})
	if len(c.Entries) != 0 || len(c.Expired) != 1 || !c.NextAt.Equal(late) {
		e.Errorf("only counting gives %s", show(c))
	}
	wantSame(e, "ready", c.Ready, map[job.Class]queue.ClassReady{
		job.Interactive: {Depth: 1, Oldest: epoch}, job.Standard: {Depth: 3, Oldest: epoch}, job.Batch: {Depth: 2, Oldest: early}})
	admitted := func(entry *queue.Entry) bool { return entry.Spec.Class == job.Batch }
	c = e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 9, Now: epoch, Lease: lease, Count: true, Admit: admitted})
	wantSame(e, "ready beside the claimed", c.Ready, map[job.Class]queue.ClassReady{
		job.Interactive: {Depth: 1, Oldest: epoch}, job.Standard: {Depth: 3, Oldest: epoch}})
}

// claimCountBound counts no more than it says.
func claimCountBound(e *env) {
	var all []queue.Entry
	for n := range queue.MaxCount + 5 {
		x := newEntry(fmt.Sprintf("j%05d", n), priority(n%3))
		x.ID = job.ID(x.Spec.Name)
		all = append(all, x)
	}
	e.enqueue(all...)
	c := e.claimAs(queue.ClaimSpec{Holder: "tester", Now: epoch, Count: true})
	wantSame(e, "ready", c.Ready, map[job.Class]queue.ClassReady{job.Standard: {Depth: queue.MaxCount, Oldest: epoch}})
}

// listSince lists what is unfinished or ended lately.
func listSince(e *env) {
	at := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }
	for n, name := range []string{"old", "edge", "new"} {
		e.enqueueOne(name)
		c := e.claimOne(epoch)
		e.apply(succeed(c, e.begin(c, epoch), epoch, at(n)))
	}
	e.apply(queue.Cancel{ID: e.enqueueOne("cancelled"), Now: at(0)})
	e.enqueueOne("held")
	e.claimOne(epoch)
	e.enqueue(newEntry("queued", duplicate(job.Coalesce, "k")), newEntry("waits", duplicate(job.Coalesce, "k")))
	want := []string{"edge", "new", "held", "queued", "waits"}
	for what, f := range map[string]queue.Filter{"all": {Since: at(1)}, "of a batch": {Since: at(1), Batch: e.batch.ID}} {
		list, total := e.list(f)
		wantSame(e, what, names(list), want)
		if total != len(want) {
			e.Errorf("%s: total %d, want %d", what, total, len(want))
		}
	}
	list, _ := e.list(queue.Filter{States: []job.EntryState{job.Queued}})
	wantSame(e, "queued", names(list), []string{"queued", "waits"})
}
