package queuetest

import (
	"errors"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// continues makes an entry go on from another, in the folder of a first.
func continues(id, folder job.ID) func(*queue.Entry) {
	return func(x *queue.Entry) { x.Continues, x.Folder = id, folder }
}

// continuesOnce: one entry goes on from one that has ended, whatever its end, with what
// is written in the same transaction.
func continuesOnce(e *env) {
	done, failed := e.done("done", epoch), e.fail("failed", job.Timeout, epoch)
	cancelled, queued := e.enqueueOne("cancelled"), e.enqueueOne("queued")
	e.apply(queue.Cancel{ID: cancelled, Now: epoch})
	expired := e.enqueueOne("expired", deadline(epoch))
	e.claim(0, epoch.Add(time.Second))
	e.wantState(expired, job.Expired)

	for _, id := range []job.ID{done, failed, cancelled, expired} {
		before := e.get(id)
		next := newEntry(string(before.Spec.Name), continues(id, id))
		next.ForkedFrom = done
		batch := newBatch("of " + string(id))
		note := queue.Record{Space: queue.JobSpace(next.ID, "notes"), Key: "1", Value: []byte(`"said"`), At: epoch}
		e.apply(queue.Add{Batch: batch, Entries: []queue.Entry{next}}, queue.Write{Record: note})
		got := e.get(next.ID)
		if got.Continues != id || got.Folder != id || got.WorksIn() != id || got.ForkedFrom != done || got.ContinuedAs != "" || got.State != job.Queued || got.Batch != batch.ID {
			e.Errorf("goes on %s", show(got))
		}
		before.ContinuedAs = next.ID
		if id == failed {
			before.RequeuedAs = next.ID
		}
		wantSame(e, "gone on from", e.get(id), before)
		if r, err := e.store.Record(e.ctx, note.Space, "1"); err != nil || string(r.Value) != `"said"` {
			e.Errorf("the record is %s, %v", r.Value, err)
		}
		// Nothing of a second one is kept, nor of what comes with it.
		other := newEntry("other", continues(id, id))
		e.refuse(queue.ErrIllegalTransition, queue.Write{Record: queue.Record{Space: queue.JobSpace(other.ID, "notes"), Key: "1", Value: []byte(`1`), At: epoch}},
			queue.Add{Batch: newBatch("second"), Entries: []queue.Entry{other}})
		if list := e.keys(queue.JobSpace(other.ID, "notes"), "", 9); len(list) > 0 {
			e.Errorf("refused, and kept %v", list)
		}
		if err := e.store.Enqueue(e.ctx, newBatch("third"), []queue.Entry{other}); !errors.Is(err, queue.ErrIllegalTransition) {
			e.Errorf("a second that goes on from %s: %v", id, err)
		}
	}
	wantSame(e, "dead letters", e.deadLetterNames(queue.Filter{}), []string{})
	e.refuse(queue.ErrIllegalTransition, queue.Add{Batch: newBatch("early"), Entries: []queue.Entry{newEntry("early", continues(queued, queued))}})
	e.refuse(queue.ErrNotFound, queue.Add{Batch: newBatch("none"), Entries: []queue.Entry{newEntry("none", continues("nobody", "nobody"))}})
	e.refuse(queue.ErrDuplicate, queue.Add{Batch: newBatch("twice"), Entries: []queue.Entry{newEntry("twice"), newEntry("twice")}})
	e.reopen()
	if got := e.get(failed); got.ContinuedAs == "" || got.ContinuedAs != got.RequeuedAs {
		e.Errorf("after a restart %s", show(got))
	}

	// What was requeued stays so; what was dropped is not requeued by it.
	again, dropped := e.fail("again", job.Timeout, epoch), e.fail("dropped", job.Timeout, epoch)
	e.apply(queue.Drop{ID: dropped, Now: epoch})
	e.batch = newBatch("requeued")
	requeued := e.enqueueOne("again", func(x *queue.Entry) { x.RequeuedFrom = again })
	e.batch = newBatch("told")
	e.enqueueOne("again", continues(again, again))
	e.enqueueOne("dropped", continues(dropped, dropped))
	if got := e.get(again); got.RequeuedAs != requeued || got.ContinuedAs == requeued {
		e.Errorf("requeued, then gone on from: %s", show(got))
	}
	if got := e.get(dropped); got.RequeuedAs != "" || got.ContinuedAs == "" {
		e.Errorf("dropped, then gone on from: %s", show(got))
	}
	e.check()
}

// continuesStay: what another goes on from is forgotten with that one, not before.
func continuesStay(e *env) {
	before, later := epoch.Add(time.Minute), epoch.Add(time.Hour)
	first := e.done("first", epoch)
	second := e.done("second", epoch, continues(first, first))
	third := e.enqueueOne("third", continues(second, first))
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: before}), []string{})
	e.apply(queue.Cancel{ID: third, Now: later})
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: before}), []string{})
	got := e.pruned(queue.PruneSpec{Before: later.Add(time.Minute)})
	slices.Sort(got)
	wantSame(e, "forgotten", got, []string{"first", "second", "third"})

	// Where the later one goes first, another can go on from the first one again.
	kept := e.done("kept", later)
	lost := e.fail("lost", job.Timeout, later, continues(kept, kept))
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{DeadLettersBefore: later.Add(time.Minute)}), []string{"lost"})
	if got := e.get(kept); got.ContinuedAs != "" {
		e.Errorf("%s was forgotten, and it goes on as %s", lost, got.ContinuedAs)
	}
	e.enqueueOne("again", continues(kept, kept))

	// What a fork begins with stays until the fork has ended.
	source := e.done("source", epoch)
	fork := e.enqueueOne("fork", func(x *queue.Entry) { x.ForkedFrom = source }, priority(99))
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: before}), []string{})
	if c := e.claimOne(epoch); c.ID != fork {
		e.Fatalf("claimed %s, want the fork", c.Spec.Name)
	}
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: before}), []string{})
	e.apply(queue.Finish{ID: fork, Fence: e.get(fork).Fence, Attempt: e.begin(e.get(fork), epoch), Now: later, Exit: job.ExitSucceeded, Outcome: job.Outcome{State: job.RunCompleted, StartedAt: epoch, EndedAt: later}})
	e.enqueueOne("first", duplicate(job.Serialize, "k"))
	waits := e.enqueueOne("waits", func(x *queue.Entry) { x.ForkedFrom = source }, duplicate(job.Serialize, "k"))
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: before}), []string{})
	e.apply(queue.Cancel{ID: waits, Now: later})
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: before}), []string{"source"})
}
