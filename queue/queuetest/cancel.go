package queuetest

import (
	"errors"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func cancelQueued(e *env) {
	id := e.enqueueOne("a")
	at := epoch.Add(time.Second)
	e.apply(queue.Cancel{ID: id, Now: at})
	if got := e.wantState(id, job.Cancelled); got.CompletedAt == nil || !got.CompletedAt.Equal(at) || got.ExitKind != "" {
		e.Errorf("cancelled entry %s", show(got))
	}
	if c := e.claim(1, at); len(c.Entries) != 0 || !c.NextAt.IsZero() {
		e.Errorf("claimed %s after it was cancelled", show(c))
	}
}

func cancelDispatched(e *env) {
	id := e.enqueueOne("a")
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(queue.Cancel{ID: id, Now: epoch})
	e.apply(queue.Cancel{ID: id, Now: epoch}) // asked twice
	if got := e.wantState(id, job.Dispatched); !got.CancelRequested || got.Fence != c.Fence || got.Holder != "tester" {
		e.Errorf("entry %s, want it to be held still", show(got))
	}
	finish := succeed(c, n, epoch, epoch)
	finish.Exit, finish.Outcome.State, finish.Outcome.Class = job.ExitCancelled, job.RunCancelled, job.CancelledClass
	e.apply(finish)
	if got := e.wantState(id, job.Completed); got.ExitKind != job.ExitCancelled || e.attempts(id)[0].State != job.RunCancelled {
		e.Errorf("entry %s", show(got))
	}
}

func cancelTerminal(e *env) {
	done, gone, dead := e.enqueueOne("done", priority(1)), e.enqueueOne("gone"), e.enqueueOne("dead", deadline(epoch))
	c := e.claimOne(epoch)
	e.apply(succeed(c, e.begin(c, epoch), epoch, epoch), queue.Cancel{ID: gone, Now: epoch})
	for id, state := range map[job.ID]job.EntryState{done: job.Completed, gone: job.Cancelled, dead: job.Expired} {
		before := e.wantState(id, state)
		e.refuse(queue.ErrIllegalTransition, queue.Cancel{ID: id, Now: epoch.Add(time.Hour)})
		wantSame(e, "terminal entry", e.get(id), before)
	}
}

// cancelKey cancels all unfinished entries of a tenant's key in one go, so that none
// of them has its turn by the end of another.
func cancelKey(e *env) {
	running := e.enqueueOne("running", duplicate(job.Serialize, "k"))
	e.claimOne(epoch)
	next, shares := e.enqueueOne("next", duplicate(job.Serialize, "k")), e.enqueueOne("shares", duplicate(job.Coalesce, "k"))
	others := []job.ID{e.enqueueOne("another tenant's", duplicate(job.Serialize, "k"), tenant("other")), e.enqueueOne("another key", duplicate(job.Serialize, "kk")), e.enqueueOne("no key")}
	list, _ := e.list(queue.Filter{Key: "k", Tenant: job.DefaultTenant})
	wantSame(e, "entries of the key", names(list), []string{"running", "next", "shares"})
	if _, total := e.list(queue.Filter{Key: "k"}); total != 4 {
		e.Errorf("%d entries of any tenant have the key, want 4", total)
	}
	gone, err := queue.CancelKey(e.ctx, e.store, job.DefaultTenant, "k", epoch)
	if err != nil {
		e.Fatal(err)
	}
	wantSame(e, "cancelled", names(gone), []string{"shares", "next", "running"})
	e.wantState(next, job.Cancelled)
	e.wantState(shares, job.Cancelled)
	if got := e.wantState(running, job.Dispatched); !got.CancelRequested {
		e.Errorf("entry %s, want it to be asked to stop", show(got))
	}
	for _, id := range others {
		e.wantState(id, job.Queued)
	}
	e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}})
	e.wantState(running, job.Completed)
	if _, err := queue.CancelKey(e.ctx, e.store, job.DefaultTenant, "k", epoch); !errors.Is(err, queue.ErrNotFound) {
		e.Errorf("once more: %v, want ErrNotFound", err)
	}
}
