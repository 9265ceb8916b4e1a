package queuetest

import (
	"errors"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// fail lets a new entry fail for good and returns its id.
func (e *env) fail(name string, class job.ErrorClass, now time.Time, options ...func(*queue.Entry)) job.ID {
	e.Helper()
	id := e.enqueueOne(name, append(options, priority(99))...)
	c := e.claimOne(now)
	if c.ID != id {
		e.Fatalf("claimed %s, want %s", c.Spec.Name, name)
	}
	n := e.begin(c, now)
	e.apply(queue.Finish{ID: id, Fence: c.Fence, Attempt: n, Now: now, Exit: job.ExitFailed, DeadLetter: "given up",
		Outcome: job.Outcome{State: job.RunFailed, Class: class, StartedAt: now, EndedAt: now}})
	return id
}

func (e *env) deadLetterNames(f queue.Filter) []string {
	e.Helper()
	f.DeadLetters = true
	list, total := e.list(f)
	if total != len(list) {
		e.Errorf("total %d of %d", total, len(list))
	}
	return names(list)
}

func deadLetters(e *env) {
	e.enqueueOne("queued")
	a := e.fail("a", job.Timeout, epoch, agent("p"))
	b := e.fail("b", job.Auth, epoch.Add(time.Minute), tenant("t"))
	e.fail("c", job.Auth, epoch.Add(2*time.Minute))
	ok := e.enqueueOne("ok", priority(99))
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(succeed(c, n, epoch, epoch))

	if got := e.get(a); got.ErrorClass != job.Timeout || got.DeadLetter != "given up" {
		e.Errorf("dead letter %s", show(got))
	}
	for _, tt := range []struct {
		f    queue.Filter
		want []string
	}{
		{queue.Filter{}, []string{"a", "b", "c"}}, {queue.Filter{Newest: true}, []string{"c", "b", "a"}},
		{queue.Filter{ErrorClass: job.Auth}, []string{"b", "c"}}, {queue.Filter{Tenant: "t"}, []string{"b"}}, {queue.Filter{Agent: "p"}, []string{"a"}},
		{queue.Filter{Batch: e.batch.ID, ErrorClass: job.Timeout}, []string{"a"}}, {queue.Filter{Batch: "none"}, []string{}},
		{queue.Filter{Since: epoch.Add(time.Minute)}, []string{"b", "c"}}, {queue.Filter{States: []job.EntryState{job.Queued}}, []string{}},
	} {
		wantSame(e, "dead letters of "+show(tt.f), e.deadLetterNames(tt.f), tt.want)
	}
	at := epoch.Add(time.Hour)
	e.apply(queue.Drop{ID: b, Now: at})
	if got := e.get(b); got.DroppedAt == nil || !got.DroppedAt.Equal(at) || got.State != job.Completed {
		e.Errorf("dropped %s", show(got))
	}
	for id, want := range map[job.ID]error{b: queue.ErrIllegalTransition, ok: queue.ErrIllegalTransition, "nobody": queue.ErrNotFound} {
		e.refuse(want, queue.Drop{ID: id, Now: at})
	}
	wantSame(e, "dead letters", e.deadLetterNames(queue.Filter{}), []string{"a", "c"})
	e.reopen()
	wantSame(e, "dead letters after a restart", e.deadLetterNames(queue.Filter{}), []string{"a", "c"})
}

func deadLetterRequeue(e *env) {
	a, dropped := e.fail("a", job.Timeout, epoch), e.fail("dropped", job.Crash, epoch)
	e.apply(queue.Drop{ID: dropped, Now: epoch})
	queued := e.enqueueOne("queued")
	before := e.get(a)

	// What is wrong leaves nothing, not even the right one of two.
	from := func(id job.ID) func(*queue.Entry) { return func(x *queue.Entry) { x.RequeuedFrom = id } }
	for id, want := range map[job.ID]error{dropped: queue.ErrIllegalTransition, queued: queue.ErrIllegalTransition, "nobody": queue.ErrNotFound} {
		err := e.store.Enqueue(e.ctx, newBatch("again"), []queue.Entry{newEntry("a", from(a)), newEntry("x", from(id))})
		if !errors.Is(err, want) {
			e.Errorf("requeue %s: %v, want %v", id, err, want)
		}
	}
	wantSame(e, "after refused requeues", e.get(a), before)
	batch := newBatch("again")
	if err := e.store.Enqueue(e.ctx, batch, []queue.Entry{newEntry("a", from(a)), newEntry("b", from(a))}); !errors.Is(err, queue.ErrIllegalTransition) {
		e.Errorf("requeue twice: %v", err)
	}
	again := newEntry("a", from(a))
	if err := e.store.Enqueue(e.ctx, batch, []queue.Entry{again}); err != nil {
		e.Fatal(err)
	}
	before.RequeuedAs = again.ID
	wantSame(e, "requeued", e.get(a), before)
	if got := e.get(again.ID); got.RequeuedFrom != a || got.State != job.Queued || got.ErrorClass != "" {
		e.Errorf("its successor %s", show(got))
	}
	wantSame(e, "dead letters", e.deadLetterNames(queue.Filter{}), []string{})
	if err := e.store.Enqueue(e.ctx, newBatch("once more"), []queue.Entry{newEntry("a", from(a))}); !errors.Is(err, queue.ErrIllegalTransition) {
		e.Errorf("requeue what was requeued: %v", err)
	}
	e.refuse(queue.ErrIllegalTransition, queue.Drop{ID: a, Now: epoch})
	if list := e.attempts(a); len(list) != 1 {
		e.Errorf("history %s", show(list))
	}
}

// deadLetterShared: what waited for the result of a dead letter is one too; a
// permit that was refused for good gives its class, or leaves the last one.
func deadLetterShared(e *env) {
	e.enqueueOne("one", duplicate(job.Coalesce, "k"))
	two := e.enqueueOne("two", duplicate(job.Coalesce, "k"))
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(queue.Finish{ID: c.ID, Fence: c.Fence, Attempt: n, Now: epoch, Retry: queue.Retry{RunnableAt: epoch},
		Outcome: job.Outcome{State: job.RunFailed, Class: job.Server, StartedAt: epoch, EndedAt: epoch}})
	if got := e.get(c.ID); got.ErrorClass != job.Server {
		e.Errorf("between two attempts %s", show(got))
	}
	c = e.claimOne(epoch)
	e.apply(queue.Finish{ID: c.ID, Fence: c.Fence, Now: epoch, Exit: job.ExitFailed, DeadLetter: "spent"})
	if got := e.get(two); got.ErrorClass != job.Server || got.DeadLetter != "spent" {
		e.Errorf("who shares the result %s", show(got))
	}
	wantSame(e, "dead letters", e.deadLetterNames(queue.Filter{}), []string{"one", "two"})
	three := e.enqueueOne("three")
	c = e.claimOne(epoch)
	e.apply(queue.Finish{ID: three, Fence: c.Fence, Now: epoch, Exit: job.ExitFailed, DeadLetter: "spent", Outcome: job.Outcome{Class: job.Budget}})
	if got := e.get(three); got.ErrorClass != job.Budget {
		e.Errorf("refused for good %s", show(got))
	}
	// A success has no class, whatever was before.
	e.enqueueOne("four")
	c = e.claimOne(epoch)
	n = e.begin(c, epoch)
	e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}})
	if got := e.get(c.ID); got.ErrorClass != job.Crash {
		e.Errorf("lost %s", show(got))
	}
	c = e.claimOne(epoch)
	e.apply(beginOp(c, n+1, epoch), queue.Move{ID: c.ID, Fence: c.Fence, Attempt: n + 1, To: job.Running}, succeed(c, n+1, epoch, epoch))
	if got := e.get(c.ID); got.ErrorClass != job.NoError {
		e.Errorf("succeeded %s", show(got))
	}
}
