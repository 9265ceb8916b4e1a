package queuetest

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// reclaimHolders takes back what those have claimed who are named, and nothing of
// anybody else, also after the store was opened again.
func reclaimHolders(e *env) {
	mine, theirs := e.enqueueOne("mine", priority(2)), e.enqueueOne("theirs", priority(1))
	for _, holder := range []string{"i/1", "i/2"} {
		c := e.claimAs(queue.ClaimSpec{Holder: holder, Max: 1, Now: epoch, Lease: lease}).Entries[0]
		e.begin(c, epoch)
	}
	kept := e.get(theirs)
	e.reopen()
	now := epoch.Add(2 * lease) // after their leases
	e.apply(queue.Reclaim{Now: now, Message: "gone"}, queue.Reclaim{Now: now, Holders: []string{"", "i", "i/"}, Message: "gone"})
	e.wantState(mine, job.Dispatched)
	e.apply(queue.Reclaim{Now: now, Holders: []string{"i/1", "i/3", "i/1"}, Message: "gone"})
	e.reopen()
	if got := e.wantState(mine, job.Queued); got.Waiting != "gone" || !e.attempts(mine)[0].Lost {
		e.Errorf("taken back: %s", show(got))
	}
	wantSame(e, "what another holds", e.get(theirs), kept)
}

func reclaimLost(e *env) {
	begun, only, waits := e.enqueueOne("begun", priority(2)), e.enqueueOne("claimed", priority(1)), e.enqueueOne("waits", runnableAt(epoch.Add(time.Hour)))
	before := e.get(waits)
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(queue.Move{ID: begun, Fence: c.Fence, Attempt: n, Session: "s-1"}, queue.Append{Events: []job.Event{
		{Job: begun, Attempt: n, Seq: 1, Time: epoch, Kind: job.EventUsage, Usage: &job.Usage{InputTokens: 3, CostUSD: 0.5, CostKnown: true}},
		{Job: begun, Attempt: n, Seq: 2, Time: epoch, Kind: job.EventText, Text: `no "usage" here`},
		{Job: begun, Attempt: n, Seq: 3, Time: epoch, Kind: job.EventUsage, Usage: &job.Usage{OutputTokens: 4, CostUSD: 0.25, CostKnown: true}},
	}})
	e.claimOne(epoch)
	now := epoch.Add(10 * time.Second) // within the leases
	e.apply(queue.Reclaim{Now: now, Holders: []string{"tester"}, Message: "the scheduler was killed"})
	for id, attempts := range map[job.ID]int{begun: 1, only: 0} {
		got := e.wantState(id, job.Queued)
		if got.Holder != "" || got.LeaseUntil != nil || !got.RunnableAt.Equal(epoch) || got.Waiting != "the scheduler was killed" ||
			got.Attempts != attempts || got.Counted != 0 {
			e.Errorf("reclaimed entry %s", show(got))
		}
	}
	if got := e.get(begun).Spent; got.Tokens() != 7 || got.CostUSD != 0.75 {
		e.Errorf("usage %+v is charged, want what the events of the lost attempt say", got)
	}
	if got := e.get(begun); got.Session != "s-1" || got.SessionWorker != "codex" || got.SpentTime.Std() != 10*time.Second {
		e.Errorf("reclaimed entry %s, want the session of its attempt and its time", show(got))
	}
	a := e.attempts(begun)[0]
	if a.State != job.RunFailed || !a.Lost || a.Ended == nil || !a.Ended.Equal(now) || a.Outcome == nil ||
		a.Outcome.State != job.RunFailed || a.Outcome.Class != job.Crash || a.Outcome.Message != "the scheduler was killed" {
		e.Errorf("attempt of a holder that is gone: %s", show(a))
	}
	wantSame(e, "an entry that nobody held", e.get(waits), before)
	e.apply(queue.Reclaim{Now: now, Holders: []string{"tester"}}) // nothing is held
	c = e.claimOne(now)
	if m := e.begin(c, now); m != n+1 {
		e.Errorf("attempt %d begins after attempt %d", m, n)
	}
}

func reclaimLease(e *env) {
	e.enqueueOne("short", priority(3))
	e.enqueueOne("exact", priority(2))
	e.enqueueOne("long", priority(1))
	var held []queue.Entry
	for _, d := range []time.Duration{time.Minute, 2 * time.Minute, time.Hour} {
		c := e.claimAs(queue.ClaimSpec{Holder: "tester", Max: 1, Now: epoch, Lease: d}).Entries[0]
		e.begin(c, epoch)
		held = append(held, c)
	}
	e.apply(queue.Reclaim{Now: epoch.Add(2 * time.Minute), Lapsed: true, Message: "no sign of life"})
	e.wantState(held[1].ID, job.Dispatched)
	e.wantState(held[2].ID, job.Dispatched)
	// Its holder can have worked until the end of the lease, not longer.
	if got := e.wantState(held[0].ID, job.Queued); got.SpentTime.Std() != time.Minute {
		e.Errorf("%v are charged to a job whose holder was gone after a minute", got.SpentTime)
	}
}

// reclaimStates loses attempts in each state that a run can be left in.
func reclaimStates(e *env) {
	ways := map[job.RunState][]job.RunState{
		job.Pending:         {},
		job.Running:         {job.Running},
		job.WaitingApproval: {job.Running, job.WaitingApproval},
		job.Checkpointed:    {job.Running, job.Checkpointed},
	}
	for from, way := range ways {
		for _, cancelled := range []bool{false, true} {
			e.enqueueOne(string(from) + show(cancelled))
			c := e.claimOne(epoch)
			ops := []queue.Op{beginOp(c, 1, epoch)}
			for _, s := range way {
				ops = append(ops, queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, To: s})
			}
			if cancelled {
				ops = append(ops, queue.Cancel{ID: c.ID, Now: epoch})
			}
			e.apply(append(ops, queue.Reclaim{Now: epoch, Holders: []string{"tester"}})...)
			want, state := job.RunFailed, job.Queued
			if cancelled {
				want, state = job.RunCancelled, job.Completed
			}
			if got := e.attempts(c.ID)[0]; got.State != want || !got.Lost {
				e.Errorf("attempt that was %s: %s, want %s and lost", from, show(got), want)
			}
			e.wantState(c.ID, state)
			if !cancelled {
				e.apply(queue.Cancel{ID: c.ID, Now: epoch})
			}
		}
	}
}

func reclaimCancelled(e *env) {
	begun, only := e.enqueueOne("begun", priority(1)), e.enqueueOne("claimed")
	c := e.claimOne(epoch)
	e.begin(c, epoch)
	e.claimOne(epoch)
	e.apply(queue.Cancel{ID: begun, Now: epoch}, queue.Cancel{ID: only, Now: epoch})
	now := epoch.Add(time.Second)
	e.apply(queue.Reclaim{Now: now, Holders: []string{"tester"}, Message: "gone"})
	for _, id := range []job.ID{begun, only} {
		got := e.wantState(id, job.Completed)
		if got.ExitKind != job.ExitCancelled || got.CompletedAt == nil || !got.CompletedAt.Equal(now) || got.Holder != "" || got.LeaseUntil != nil {
			e.Errorf("entry %s", show(got))
		}
	}
	if a := e.attempts(begun)[0]; a.State != job.RunCancelled || a.Outcome.Class != job.CancelledClass {
		e.Errorf("attempt %s", show(a))
	}
}
