package queuetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// pruned forgets and returns the names of what went, by what list says was there.
func (e *env) pruned(spec queue.PruneSpec) []string {
	e.Helper()
	before, _ := e.list(queue.Filter{})
	if spec.Max == 0 {
		spec.Max = 100
	}
	ids, err := e.store.Prune(e.ctx, spec)
	if err != nil {
		e.Fatal(err)
	}
	after, _ := e.list(queue.Filter{})
	gone := slices.DeleteFunc(before, func(x queue.Entry) bool {
		return slices.ContainsFunc(after, func(y queue.Entry) bool { return x.ID == y.ID })
	})
	if len(gone) != len(ids) {
		e.Errorf("%d ids, but %d entries went", len(ids), len(gone))
	}
	for _, x := range gone {
		if !slices.Contains(ids, x.ID) {
			e.Errorf("job %s went and was not named", x.Spec.Name)
		}
	}
	if err := e.store.Check(e.ctx); err != nil {
		e.Error(err)
	}
	return names(gone)
}

// done lets an entry succeed at now and returns its id.
func (e *env) done(name string, now time.Time, options ...func(*queue.Entry)) job.ID {
	e.Helper()
	id := e.enqueueOne(name, append(options, priority(99))...)
	c := e.claimOne(now)
	if c.ID != id {
		e.Fatalf("claimed %s, want %s", c.Spec.Name, name)
	}
	n := e.begin(c, now)
	e.apply(queue.Append{Events: []job.Event{usageEvent(id, n, 1, now, 7, 0.25)}}, succeed(c, n, now, now))
	return id
}

func prune(e *env) {
	later := epoch.Add(time.Hour)
	old := e.done("old", epoch)
	cancelled := e.enqueueOne("cancelled")
	e.apply(queue.Cancel{ID: cancelled, Now: epoch})
	e.enqueueOne("expired", deadline(epoch.Add(time.Minute)))
	e.claim(1, epoch.Add(time.Minute))
	young := e.done("young", later)
	e.enqueueOne("queued", runnableAt(later.Add(time.Hour)))
	e.enqueueOne("dispatched")
	e.claimOne(epoch)
	e.apply(queue.CloseBatch{ID: e.batch.ID, Now: later})
	before := e.charged()
	wantSame(e, "forgotten without a time", e.pruned(queue.PruneSpec{}), []string{})
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: epoch.Add(time.Minute)}), []string{"old", "cancelled"})
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: later}), []string{"expired"})
	for _, id := range []job.ID{old, cancelled} {
		if _, err := e.store.Attempts(e.ctx, id); err == nil {
			e.Errorf("the attempts of %s are left", id)
		}
		if _, err := e.store.Events(e.ctx, id, 0, 10); err == nil {
			e.Errorf("the events of %s are left", id)
		}
	}
	wantSame(e, "what was used", e.charged(), before)
	if len(e.events(young, 0, 10)) != 1 || len(e.attempts(young)) != 1 {
		e.Error("a job that stays has lost its history")
	}
	// A name that was forgotten is free again, in the same batch.
	e.enqueueOne("old", runnableAt(later.Add(time.Hour)))
	for _, bad := range []int{0, -1} {
		if _, err := e.store.Prune(e.ctx, queue.PruneSpec{Before: later, Max: bad}); err == nil {
			e.Errorf("forgot at most %d", bad)
		}
	}
	// Batches go with their last entry.
	e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}})
	all, _ := e.list(queue.Filter{States: []job.EntryState{job.Queued}})
	for _, x := range all {
		e.apply(queue.Cancel{ID: x.ID, Now: epoch})
	}
	open := newBatch("private")
	open.Private = true
	entry := newEntry("x")
	if err := e.store.Enqueue(e.ctx, open, []queue.Entry{entry}); err != nil {
		e.Fatal(err)
	}
	e.apply(queue.Cancel{ID: entry.ID, Now: epoch})
	if got := e.pruned(queue.PruneSpec{Before: later.Add(time.Hour)}); len(got) != 5 {
		e.Errorf("forgot %v, want the five that are left", got)
	}
	batches, err := e.store.Batches(e.ctx, "")
	if err != nil || len(batches) != 1 || batches[0].ID != open.ID {
		e.Errorf("batches %s, want only the private one that is open (%v)", show(batches), err)
	}
}

func pruneDeadLetters(e *env) {
	e.fail("waits", job.Timeout, epoch)
	dropped := e.fail("dropped", job.Timeout, epoch)
	e.apply(queue.Drop{ID: dropped, Now: epoch})
	e.fail("young", job.Timeout, epoch.Add(time.Hour))
	before := epoch.Add(time.Minute)
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: before}), []string{"dropped"})
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{DeadLettersBefore: epoch}), []string{})
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{DeadLettersBefore: before}), []string{"waits"})
	wantSame(e, "dead letters", e.deadLetterNames(queue.Filter{}), []string{"young"})
}

// pruneKeeps: what has a result that another entry needs stays as long as that
// one, and goes with it.
func pruneKeeps(e *env) {
	before, later := epoch.Add(time.Minute), epoch.Add(time.Hour)
	// A dead letter and what did it again, twice.
	first := e.fail("first", job.Timeout, epoch)
	e.batch = newBatch("again")
	second := e.fail("second", job.Timeout, epoch, func(x *queue.Entry) { x.RequeuedFrom = first })
	e.batch = newBatch("and again")
	e.done("third", later, func(x *queue.Entry) { x.RequeuedFrom = second })
	// One whose result a younger one awaits: its leader is completed with it, so
	// only a store that forgets them in the wrong order loses something.
	e.enqueueOne("leader", duplicate(job.Coalesce, "k"))
	follower := e.enqueueOne("follower", duplicate(job.Coalesce, "k"))
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(succeed(c, n, epoch, epoch))

	if got := e.pruned(queue.PruneSpec{Before: before, Max: 1}); len(got) != 1 || got[0] != "follower" {
		e.Errorf("forgot %v first, want the one that has another's result", got)
	}
	if _, err := e.store.Get(e.ctx, follower); err == nil {
		e.Error("the follower is still there")
	}
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: before}), []string{"leader"})
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: later.Add(time.Minute)}), []string{"first", "second", "third"})
}

// pruneMax forgets in parts, and a part that is not full is the last.
func pruneMax(e *env) {
	for i := range 7 {
		id := e.enqueueOne(fmt.Sprint("j", i))
		e.apply(queue.Cancel{ID: id, Now: epoch.Add(-time.Duration(i) * time.Second)})
	}
	for _, want := range [][]string{{"j4", "j5", "j6"}, {"j1", "j2", "j3"}, {"j0"}, {}} {
		wantSame(e, "the oldest first", e.pruned(queue.PruneSpec{Before: epoch.Add(time.Second), Max: 3}), want)
	}
}

// pruneEvents forgets a job with more events than any store deletes at once.
func pruneEvents(e *env) {
	id := e.done("talkative", epoch)
	const parts, each = 12, 1000
	for p := range parts {
		var events []job.Event
		for i := range each {
			events = append(events, event(id, 1, int64(10+p*each+i)))
		}
		e.apply(queue.Append{Events: events})
	}
	e.done("other", epoch)
	if got := e.pruned(queue.PruneSpec{Before: epoch.Add(time.Second)}); len(got) != 2 {
		e.Errorf("forgot %v, want both", got)
	}
}
