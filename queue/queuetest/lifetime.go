package queuetest

import (
	"context"
	"errors"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func cancelledContext(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	// With a context that ended before the call, nothing can have happened.
	if err := e.store.Enqueue(ctx, e.batch, []queue.Entry{newEntry("a")}); !errors.Is(err, context.Canceled) {
		e.Errorf("enqueue: got error %v, want the context's", err)
	}
	if _, err := e.store.Claim(ctx, queue.ClaimSpec{Holder: "tester", Max: 1, Now: epoch, Lease: lease}); !errors.Is(err, context.Canceled) {
		e.Errorf("claim: got error %v, want the context's", err)
	}
	if _, err := e.store.Get(ctx, "x"); !errors.Is(err, context.Canceled) {
		e.Errorf("get: got error %v, want the context's", err)
	}
	if _, total := e.list(queue.Filter{}); total != 0 {
		e.Errorf("%d entries are stored", total)
	}
}

func closed(e *env) {
	id := e.enqueueOne("a")
	s := e.store
	e.close()
	if err := s.Enqueue(e.ctx, e.batch, []queue.Entry{newEntry("b")}); err == nil {
		e.Error("a closed store took an entry")
	}
	if _, err := s.Get(e.ctx, id); err == nil {
		e.Error("a closed store gave an entry")
	}
}

// reopen takes jobs to every state, closes the store and compares all that it
// says before and after.
func reopen(e *env) {
	done, waits, held := e.enqueueOne("done", priority(9)), e.enqueueOne("waits", runnableAt(epoch.Add(time.Hour))), e.enqueueOne("held")
	e.enqueueOne("dead", deadline(epoch))
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	usage := job.Usage{InputTokens: 10, OutputTokens: 3, CostUSD: 0.25, CostKnown: true}
	e.apply(queue.Append{Events: []job.Event{
		{Job: c.ID, Attempt: n, Seq: 1, Time: epoch, Kind: job.EventText, Text: "hello"},
		{Job: c.ID, Attempt: n, Seq: 2, Time: epoch, Kind: job.EventUsage, Usage: &usage},
	}})
	finish := succeed(c, n, epoch, epoch.Add(time.Second))
	finish.Outcome.Usage, finish.Outcome.Answer = usage, "done"
	finish.Outcome.Artifacts = []job.Artifact{{Name: job.ArtifactPatch, Path: "/p", Bytes: 3}}
	e.apply(finish, queue.CloseBatch{ID: e.batch.ID, Now: epoch.Add(time.Minute)})
	h := e.claimOne(epoch)
	e.begin(h, epoch)

	type everything struct {
		Entries  []queue.Entry
		Batches  []queue.Batch
		Attempts [][]job.Attempt
		Events   [][]queue.StoredEvent
	}
	look := func() (all everything) {
		var err error
		all.Entries, _ = e.list(queue.Filter{})
		if all.Batches, err = e.store.Batches(e.ctx, ""); err != nil {
			e.Fatal(err)
		}
		for _, id := range []job.ID{done, waits, held} {
			all.Attempts = append(all.Attempts, e.attempts(id))
			all.Events = append(all.Events, e.events(id, 0, 10))
		}
		return all
	}
	before := look()
	if len(before.Entries) != 4 || len(before.Attempts[0]) != 1 || len(before.Events[0]) != 2 || before.Batches[0].ClosedAt == nil {
		e.Fatalf("before: %s", show(before))
	}
	e.reopen()
	wantSame(e, "after opening again", look(), before)
	// The claim is still held and the numbers go on.
	e.apply(succeed(h, 1, epoch, epoch.Add(time.Second)))
	if c := e.claim(1, epoch.Add(time.Hour)); len(c.Entries) != 1 || c.Entries[0].Fence <= h.Fence {
		e.Fatalf("after opening again claimed %s, want a fence larger than %d", show(c), h.Fence)
	}
}
