package queuetest

import (
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
