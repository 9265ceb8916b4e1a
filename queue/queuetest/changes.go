package queuetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// follower knows a batch by what it is told of it.
type follower struct {
	batch job.BatchID
	known []queue.Entry
	mark  queue.Mark
}

// follow asks for what has changed and applies it.
func (f *follower) follow(ctx context.Context, s queue.Store) (queue.Changes, error) {
	c, err := s.BatchSince(ctx, f.batch, f.mark)
	if err != nil {
		return c, err
	}
	if c.Whole {
		f.known = nil
	}
	f.mark = c.Mark
	for _, e := range c.Entries {
		if i := slices.IndexFunc(f.known, func(x queue.Entry) bool { return x.ID == e.ID }); i >= 0 {
			f.known[i] = e
		} else {
			f.known = append(f.known, e)
		}
	}
	return c, nil
}

// follow follows, and fails the test unless that gives what List does, and of it
// those that are wanted as changed.
func (e *env) follow(f *follower, whole bool, changed ...string) {
	e.Helper()
	c, err := f.follow(e.ctx, e.store)
	if err != nil {
		e.Fatal(err)
	}
	if c.Whole != whole || len(c.Entries) > 0 && c.Mark == 0 {
		e.Errorf("whole %v with mark %d, want %v", c.Whole, c.Mark, whole)
	}
	wantSame(e, "what has changed", names(c.Entries), append([]string{}, changed...))
	list, _ := e.list(queue.Filter{Batch: f.batch})
	wantSame(e, "what the follower knows", f.known, list)
}

func changesTold(e *env) {
	other, odd := newBatch("other"), newBatch("odd")
	all, late := &follower{batch: e.batch.ID}, &follower{batch: e.batch.ID}
	e.follow(all, true)
	a, b := e.enqueueOne("a"), e.enqueueOne("b")
	e.follow(all, true, "a", "b")
	e.follow(all, false)
	e.follow(late, true, "a", "b")
	if err := e.store.Enqueue(e.ctx, other, []queue.Entry{newEntry("x", priority(9))}); err != nil {
		e.Fatal(err)
	}
	of := &follower{batch: other.ID}
	e.follow(of, true, "x")

	// Each batch is told of its own.
	e.claimOne(epoch)
	e.follow(all, false)
	e.follow(of, false, "x")
	c := e.claimOne(epoch)
	e.follow(all, false, "a")
	n := e.begin(c, epoch)
	e.follow(all, false, "a")
	// A lease is extended, and it is asked to stop; both are told as one.
	if lost, err := e.store.Extend(e.ctx, []job.Fence{c.Fence}, epoch.Add(time.Hour)); err != nil || len(lost) > 0 {
		e.Fatal(lost, err)
	}
	e.apply(queue.Cancel{ID: a, Now: epoch})
	e.follow(all, false, "a")
	// What is refused has changed nothing, whatever it had before.
	e.refuse(queue.ErrNotFound, queue.Keep{ID: b, For: job.HeldForNeeds, Waiting: "w"}, queue.Cancel{ID: "nobody", Now: epoch})
	e.follow(all, false)
	// What it is resolved to is another part of an entry, a record none.
	e.apply(queue.Keep{ID: b, For: job.HeldForNeeds}, queue.Ready{ID: b, Resolved: &job.Resolved{Instructions: "other"}, Now: epoch})
	e.follow(all, false, "b")
	e.apply(queue.Write{Record: queue.Record{Space: "s", Key: "k", At: epoch}}, queue.CloseBatch{ID: e.batch.ID, Now: epoch})
	e.follow(all, false)
	// The end of one gives another its turn, and a third goes with it.
	e.enqueueOne("leads", duplicate(job.Coalesce, "k"), priority(9))
	e.enqueueOne("shares", duplicate(job.Coalesce, "k"))
	e.follow(all, false, "leads", "shares")
	lead := e.claimOne(epoch)
	e.apply(queue.Finish{ID: lead.ID, Fence: lead.Fence, Exit: job.ExitFailed, DeadLetter: "spent", Now: epoch})
	e.follow(all, false, "leads", "shares")
	e.apply(queue.Spawn{Batch: e.batch.ID, Entries: []queue.Entry{newEntry("part"), newEntry("a")}}, succeed(c, n, epoch, epoch))
	e.follow(all, false, "a", "part")
	// Who asks seldom is told the same, and a mark that was never given tells nothing.
	e.follow(late, false, "a", "b", "leads", "shares", "part")
	late.mark += 1000
	e.follow(late, true, "a", "b", "leads", "shares", "part")
	e.follow(&follower{batch: odd.ID}, true)
	e.follow(of, false)

	e.reopen()
	e.follow(all, true, "a", "b", "leads", "shares", "part")
	e.follow(all, false)
	if _, err := e.store.Prune(e.ctx, queue.PruneSpec{Before: epoch.Add(1), DeadLettersBefore: epoch.Add(1), Max: 10}); err != nil {
		e.Fatal(err)
	}
	e.follow(all, true, "b", "part")
	s := e.store
	ended, end := context.WithCancel(e.ctx)
	end()
	if _, err := s.BatchSince(ended, e.batch.ID, all.mark); err == nil {
		e.Error("with a context that has ended: no error")
	}
	e.close()
	if _, err := s.BatchSince(e.ctx, e.batch.ID, all.mark); err == nil {
		e.Error("a closed store told of changes")
	}
}

// changesTogether: while others write, what a follower knows is what was there at
// one moment. Change n of a batch is of its first entry, which tells n, and of one
// of the others; so the first says how they all are.
func changesTogether(e *env) {
	const batches, others, turns = 6, 5, 30
	all := make([][]queue.Entry, batches)
	for b := range all {
		for i := range 1 + others {
			all[b] = append(all[b], newEntry(fmt.Sprint("j", i), func(x *queue.Entry) { x.Held, x.Waiting = job.HeldForNeeds, "0" }))
			if i > 1 { // as if changes had come before
				all[b][i].Waiting = fmt.Sprint(i - 1 - others)
			}
		}
		e.batch = newBatch(fmt.Sprint(b))
		e.enqueue(all[b]...)
		for i := range all[b] {
			all[b][i].Batch = e.batch.ID
		}
	}
	var writers, followers sync.WaitGroup
	for _, entries := range all {
		writers.Go(func() {
			for n := 1; n <= turns; n++ {
				both := func(text string) []queue.Op {
					return []queue.Op{
						queue.Keep{ID: entries[0].ID, For: job.HeldForNeeds, Waiting: text},
						queue.Keep{ID: entries[1+n%others].ID, For: job.HeldForNeeds, Waiting: text},
					}
				}
				if err := e.store.Apply(e.ctx, append(both("refused"), queue.Cancel{ID: "nobody", Now: epoch})...); err == nil {
					e.Error("a job that is not there was cancelled")
				}
				if err := e.store.Apply(e.ctx, both(fmt.Sprint(n))...); err != nil {
					e.Error(err)
				}
			}
		})
	}
	for _, entries := range all {
		followers.Go(func() {
			f := &follower{batch: entries[0].Batch}
			for last := 0; last < turns; {
				if _, err := f.follow(e.ctx, e.store); err != nil {
					e.Error(err)
					return
				}
				told, err := strconv.Atoi(f.known[0].Waiting)
				if err != nil || told < last {
					e.Errorf("told of change %s after %d", f.known[0].Waiting, last)
					return
				}
				last = told
				for n := last; n > last-others; n-- {
					if got := f.known[1+(n+others)%others].Waiting; got != fmt.Sprint(n) {
						e.Errorf("told of change %d, but of %d there is %s", last, n, got)
						return
					}
				}
			}
		})
	}
	writers.Wait()
	followers.Wait()
}

// follow compares what a follower of a batch knows with what there is.
func (m *machine) follow(r *rapid.T) {
	m.followOne(r, rapid.SampledFrom(m.followers).Draw(r, "follower"))
}

func (m *machine) followOne(r *rapid.T, f *follower) {
	if _, err := f.follow(m.ctx, m.real); err != nil {
		r.Fatalf("follow: %v", err)
	}
	list, _, err := m.real.List(m.ctx, queue.Filter{Batch: f.batch})
	if err != nil {
		r.Fatalf("list: %v", err)
	}
	wantSame(r, "what a follower knows", f.known, list)
}
