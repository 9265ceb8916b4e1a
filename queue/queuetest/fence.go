package queuetest

import (
	"errors"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func fenceGrows(e *env) {
	e.enqueueOne("a")
	e.enqueueOne("b")
	last := job.Fence(0)
	for range 5 {
		c := e.claim(2, epoch)
		if len(c.Entries) != 2 {
			e.Fatalf("claimed %d entries, want 2", len(c.Entries))
		}
		for _, entry := range c.Entries {
			if entry.Fence <= last {
				e.Fatalf("fence %d after %d", entry.Fence, last)
			}
			last = entry.Fence
			e.apply(queue.Release{ID: entry.ID, Fence: entry.Fence, RunnableAt: epoch})
		}
	}
}

func fenceRefusesTheOld(e *env) {
	e.enqueueOne("a")
	old := e.claimOne(epoch)
	n := e.begin(old, epoch)
	e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}, Message: "gone"})
	stale := []queue.Op{
		beginOp(old, n+1, epoch),
		queue.Move{ID: old.ID, Fence: old.Fence, Attempt: n, To: job.WaitingApproval},
		queue.Move{ID: old.ID, Fence: old.Fence, Attempt: n, Session: "s"},
		succeed(old, n, epoch, epoch),
		queue.Finish{ID: old.ID, Fence: old.Fence, Now: epoch, Exit: job.ExitFailed},
		queue.Release{ID: old.ID, Fence: old.Fence, RunnableAt: epoch},
	}
	refused := func(when string) {
		before := e.get(old.ID)
		for _, op := range stale {
			e.refuse(queue.ErrFenced, op)
		}
		wantSame(e, when+": the entry after refused writes", e.get(old.ID), before)
	}
	refused("queued again")
	fresh := e.claimOne(epoch)
	refused("claimed by another")
	m := e.begin(fresh, epoch)
	refused("run by another")
	e.apply(succeed(fresh, m, epoch, epoch))
	refused("finished by another")
	e.refuse(queue.ErrFenced, queue.Release{ID: old.ID, RunnableAt: epoch})
}

func finishOnce(e *env) {
	e.enqueueOne("a")
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(succeed(c, n, epoch, epoch.Add(time.Second)))
	before := e.get(c.ID)
	if before.State != job.Completed || before.ExitKind != job.ExitSucceeded || before.Holder != "" || before.LeaseUntil != nil ||
		before.CompletedAt == nil || !before.CompletedAt.Equal(epoch.Add(time.Second)) {
		e.Errorf("finished entry %s", show(before))
	}
	e.refuse(queue.ErrFenced, succeed(c, n, epoch, epoch.Add(time.Hour)))
	e.refuse(queue.ErrFenced, queue.Release{ID: c.ID, Fence: c.Fence, RunnableAt: epoch})
	wantSame(e, "entry after a second finish", e.get(c.ID), before)
	if c := e.claim(1, epoch.Add(time.Hour)); len(c.Entries) != 0 {
		e.Error("a completed entry was claimed")
	}
}

func finishConcurrently(e *env) {
	const writers = 12
	e.enqueueOne("a")
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		op := succeed(c, n, epoch, epoch)
		op.Outcome.ExitCode = w
		op.Outcome.Usage = job.Usage{InputTokens: 1}
		wg.Go(func() { errs[w] = e.store.Apply(e.ctx, op) })
	}
	wg.Wait()
	winner, won := -1, 0
	for w, err := range errs {
		switch {
		case err == nil:
			winner = w
			won++
		case !errors.Is(err, queue.ErrFenced):
			e.Errorf("writer %d: got error %v, want %v", w, err, queue.ErrFenced)
		}
	}
	if won != 1 {
		e.Fatalf("%d writers finished the attempt, want 1", won)
	}
	attempts := e.attempts(c.ID)
	if len(attempts) != 1 || attempts[0].Outcome.ExitCode != winner || e.get(c.ID).Spent.InputTokens != 1 {
		e.Errorf("stored %s, want the outcome of writer %d, once", show(attempts), winner)
	}
}
