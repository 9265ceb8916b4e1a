package queuetest

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// holdExpires: what is held expires like all else, but not what waits for a person.
func holdExpires(e *env) {
	soon, later := epoch.Add(time.Minute), epoch.Add(time.Hour)
	asked := e.asked("asked", epoch, deadline(soon))
	for i, h := range []job.Hold{job.HeldForNeeds, job.HeldForParts, job.HeldForTeam} {
		e.enqueueOne(string(h), held(h), deadline(soon.Add(time.Duration(i)*time.Second)))
	}
	e.enqueueOne("later", held(job.HeldForNeeds), deadline(later))
	if c := e.claim(1, epoch); len(c.Expired) != 0 || !c.NextAt.Equal(soon) {
		e.Errorf("before the first deadline a claim says %s, want %v next", show(c), soon)
	}
	if c := e.claimAs(queue.ClaimSpec{Holder: "other", External: true, Max: 1, Now: later, Lease: lease}); len(c.Expired) != 0 {
		e.Errorf("a claim of another scope let expire %v", c.Expired)
	}
	c := e.claim(1, soon.Add(time.Second))
	if len(c.Expired) != 2 || !c.NextAt.Equal(soon.Add(2*time.Second)) {
		e.Errorf("a claim says %s, want two expired", show(c))
	}
	for _, id := range c.Expired {
		if got := e.wantState(id, job.Expired); got.Held != "" || got.Waiting != "" {
			e.Errorf("expired %s", show(got))
		}
	}
	if c := e.claim(1, later.Add(time.Hour)); len(c.Expired) != 2 || !c.NextAt.IsZero() {
		e.Errorf("a claim says %s, want the other two expired", show(c))
	}
	e.wantState(asked.ID, job.Queued)
	e.apply(queue.Decide{ID: asked.ID, Attempt: 1, Approved: true, Now: later})
	e.wantState(asked.ID, job.Completed)
	e.check()
}

// holdPools: what is let go is claimed by whom its batch says, also if that has
// changed meanwhile.
func holdPools(e *env) {
	private := newBatch("private")
	private.Private = true
	submit := func(b queue.Batch, name string, options ...func(*queue.Entry)) job.ID {
		x := newEntry(name, append(options, held(job.HeldForNeeds))...)
		if err := e.store.Enqueue(e.ctx, b, []queue.Entry{x}); err != nil {
			e.Fatal(err)
		}
		return x.ID
	}
	external := func(x *queue.Entry) { x.Spec.Type = job.External }
	own, shared, out := submit(private, "own"), submit(e.batch, "shared"), submit(private, "out", external)
	kept := submit(private, "kept")
	first := submit(private, "first", duplicate(job.Serialize, "k"))
	second := submit(private, "second", duplicate(job.Serialize, "k"))
	if list, _ := e.list(queue.Filter{External: true}); len(list) != 1 || list[0].ID != out {
		e.Errorf("external: %v", names(list))
	}
	claim := func(spec queue.ClaimSpec) []string {
		e.Helper()
		spec.Holder, spec.Max, spec.Now, spec.Lease = "tester", 9, epoch, lease
		return names(e.claimAs(spec).Entries)
	}
	none := []string{}
	wantSame(e, "of the batch", claim(queue.ClaimSpec{Batch: private.ID}), none)
	e.apply(queue.Ready{ID: own, Now: epoch}, queue.Ready{ID: shared, Now: epoch}, queue.Ready{ID: out, Now: epoch})
	wantSame(e, "of the batch", claim(queue.ClaimSpec{Batch: private.ID}), []string{"own"})
	wantSame(e, "external", claim(queue.ClaimSpec{External: true}), []string{"out"})
	wantSame(e, "shared", claim(queue.ClaimSpec{}), []string{"shared"})
	e.apply(queue.Adopt{})
	wantSame(e, "after all was shared", claim(queue.ClaimSpec{}), none)
	e.apply(queue.Ready{ID: kept, Now: epoch}, queue.Ready{ID: first, Now: epoch}, queue.Ready{ID: second, Now: epoch})
	wantSame(e, "let go", claim(queue.ClaimSpec{Batch: private.ID}), none)
	if got := claim(queue.ClaimSpec{}); len(got) != 2 {
		e.Errorf("claimed %v, want kept and first", got)
	}
	c := e.get(first)
	e.apply(queue.Finish{ID: first, Fence: c.Fence, Now: epoch, Exit: job.ExitSucceeded})
	wantSame(e, "let go while it waited", claim(queue.ClaimSpec{}), []string{"second"})
	e.check()
}

// holdLine: what is held keeps its place in the line of its key.
func holdLine(e *env) {
	k := func(p job.DuplicatePolicy) func(*queue.Entry) { return duplicate(p, "k") }
	a := e.enqueueOne("a", k(job.Serialize), held(job.HeldForNeeds))
	b := e.enqueueOne("b", k(job.Serialize), held(job.HeldForParts))
	c := e.enqueueOne("c", k(job.Coalesce))
	d := e.enqueueOne("d", k(job.Serialize))
	if c := e.claim(9, epoch); len(c.Entries) != 0 {
		e.Fatalf("claimed %v behind what is held", names(c.Entries))
	}
	if got := e.get(b); got.WaitsFor != a || got.Waiting != "held for parts" {
		e.Errorf("held and in a line: %s", show(got))
	}
	// b ends before its turn: its result is c's, and d waits for a.
	now := epoch.Add(time.Second)
	e.apply(queue.Conclude{ID: b, Exit: job.ExitFailed, DeadLetter: "a part failed", Class: job.Timeout, Now: now})
	if got := e.wantState(b, job.Completed); got.WaitsFor != "" || got.ErrorClass != job.Timeout {
		e.Errorf("concluded %s", show(got))
	}
	if got := e.wantState(c, job.Completed); got.ExitKind != job.ExitFailed || got.DeadLetter != "a part failed" || got.ErrorClass != job.Timeout {
		e.Errorf("who had its result: %s", show(got))
	}
	if got := e.get(d); got.WaitsFor != a || got.Waiting != queue.WaitingFor(a, "a", "k") {
		e.Errorf("who came next: %s", show(got))
	}
	// d is held while a goes: its turn has come, but it is still held.
	e.apply(queue.Keep{ID: d, For: job.HeldForTeam, Waiting: "the team"})
	f := e.enqueueOne("f", k(job.Coalesce))
	e.apply(queue.Skip{ID: a, Why: "its condition does not hold", Now: now})
	if got := e.wantState(a, job.Cancelled); got.Skipped != "its condition does not hold" || got.Held != "" || got.ExitKind != "" || !got.CompletedAt.Equal(now) {
		e.Errorf("skipped %s", show(got))
	}
	if got := e.get(d); got.WaitsFor != "" || got.Waiting != "the team" {
		e.Errorf("held as its turn came: %s", show(got))
	}
	// g waits; it is kept and let go while it waits, and says so.
	g := e.enqueueOne("g", k(job.Serialize))
	e.apply(queue.Keep{ID: g, For: job.HeldForNeeds, Waiting: "needs"}, queue.Ready{ID: g, Now: now})
	if got := e.get(g); got.Held != "" || got.WaitsFor != d || got.Waiting != queue.WaitingFor(d, "d", "k") {
		e.Errorf("let go in a line: %s", show(got))
	}
	if c := e.claim(9, now); len(c.Entries) != 0 {
		e.Fatalf("claimed %v", names(c.Entries))
	}
	e.apply(queue.Cancel{ID: d, Now: now})
	wantSame(e, "whose turn it is", names(e.claim(9, now).Entries), []string{"f"})
	if got := e.get(f); got.CoalescedWith != "" {
		e.Errorf("the heir of what was held: %s", show(got))
	}
	// One that is held says so, whoever is before it in the line.
	front := e.enqueueOne("front", duplicate(job.Serialize, "m"))
	middle := e.enqueueOne("middle", duplicate(job.Serialize, "m"))
	back := e.enqueueOne("back", duplicate(job.Serialize, "m"), held(job.HeldForNeeds))
	e.apply(queue.Cancel{ID: middle, Now: now})
	if got := e.get(back); got.WaitsFor != front || got.Waiting != "held for needs" {
		e.Errorf("held behind another: %s", show(got))
	}
	// The latest wins over what is held, too.
	h := e.enqueueOne("h", duplicate(job.Serialize, "l"), held(job.HeldForNeeds))
	i := e.enqueueOne("i", duplicate(job.LatestWins, "l"), held(job.HeldForNeeds))
	if got := e.wantState(h, job.Cancelled); got.Held != "" || got.SupersededBy != i {
		e.Errorf("superseded %s", show(got))
	}
	e.check()
}

// holdRebase: what is held is put right with all else.
func holdRebase(e *env) {
	ahead := epoch.Add(time.Hour)
	id := e.enqueueOne("held", held(job.HeldForNeeds), runnableAt(ahead))
	e.apply(queue.Rebase{Now: epoch, After: epoch.Add(time.Minute)})
	if got := e.get(id); !got.RunnableAt.Equal(epoch) || got.Held != job.HeldForNeeds {
		e.Errorf("after the clock was put back: %s", show(got))
	}
}
