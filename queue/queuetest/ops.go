package queuetest

import (
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func applyAllOrNothing(e *env) {
	e.enqueueOne("a")
	waits := e.enqueueOne("waits", runnableAt(epoch.Add(time.Hour)))
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	before, _ := e.list(queue.Filter{})
	good := []queue.Op{
		queue.Append{Events: []job.Event{{Job: c.ID, Attempt: n, Seq: 1, Kind: job.EventText, Text: "x"}}},
		queue.Move{ID: c.ID, Fence: c.Fence, Attempt: n, To: job.WaitingApproval, Session: "s"},
		queue.Cancel{ID: waits, Now: epoch},
		queue.CloseBatch{ID: e.batch.ID, Now: epoch},
	}
	bad := []struct {
		op   queue.Op
		want error
	}{
		{queue.Cancel{ID: "nobody", Now: epoch}, queue.ErrNotFound},
		{queue.CloseBatch{ID: "nothing", Now: epoch}, queue.ErrNotFound},
		{queue.Release{ID: c.ID, Fence: c.Fence + 1}, queue.ErrFenced},
		{queue.Move{ID: c.ID, Fence: c.Fence, Attempt: n + 1, Session: "t"}, queue.ErrNotFound},
		{queue.Move{ID: c.ID, Fence: c.Fence, Attempt: n, To: job.Checkpointed}, queue.ErrIllegalTransition},
		{queue.Move{ID: c.ID, Fence: c.Fence, Attempt: n, To: "somewhere"}, queue.ErrIllegalTransition},
	}
	for _, b := range bad {
		e.refuse(b.want, append(good[:len(good):len(good)], b.op)...)
		after, _ := e.list(queue.Filter{})
		wantSame(e, "entries after refused ops", after, before)
		if got := e.attempts(c.ID); got[0].State != job.Running || got[0].Session != "" {
			e.Fatalf("attempt after refused ops: %s", show(got))
		}
		if got := e.events(c.ID, 0, 10); len(got) != 0 {
			e.Fatalf("events after refused ops: %s", show(got))
		}
		if got, err := e.store.Batches(e.ctx, ""); err != nil || got[0].ClosedAt != nil {
			e.Fatalf("batches after refused ops: %s, %v", show(got), err)
		}
	}
	// Events one of which has no job.
	e.refuse(queue.ErrNotFound, queue.Append{Events: []job.Event{
		{Job: c.ID, Attempt: n, Seq: 1, Kind: job.EventText}, {Job: "nobody", Attempt: 1, Seq: 1, Kind: job.EventText}}})
	if got := e.events(c.ID, 0, 10); len(got) != 0 {
		e.Fatalf("events after refused ones: %s", show(got))
	}
	e.apply(good...)
	e.apply() // nothing
}

func applyOrder(e *env) {
	e.enqueueOne("a")
	c := e.claimOne(epoch)
	// One call does a whole attempt: each op sees what those before it did.
	e.apply(
		beginOp(c, 1, epoch),
		queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, To: job.Running, Session: "s"},
		queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, To: job.Checkpointed},
		queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, To: job.Running},
		succeed(c, 1, epoch, epoch))
	if entry := e.wantState(c.ID, job.Completed); entry.Attempts != 1 || entry.Session != "s" || entry.SessionWorker != "codex" {
		e.Errorf("entry %s", show(entry))
	}
}

// endAllOrNothing ends an attempt as the scheduler does: with its last events and its move
// to Running. Where the end is refused none of them is kept.
func endAllOrNothing(e *env) {
	e.enqueueOne("a")
	c := e.claimOne(epoch)
	e.apply(beginOp(c, 1, epoch))
	used := event(c.ID, 1, 2)
	used.Kind, used.Usage = job.EventUsage, &job.Usage{InputTokens: 7}
	for _, events := range [][]job.Event{{event(c.ID, 1, 1)}, {event(c.ID, 1, 1), used}} {
		ops := func(change func(*queue.Move, *queue.Finish)) []queue.Op {
			move, end := queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, To: job.Running}, succeed(c, 1, epoch, epoch)
			end.Outcome.Usage = job.Usage{InputTokens: 7}
			change(&move, &end)
			return []queue.Op{queue.Append{Events: events}, move, end}
		}
		before := e.get(c.ID)
		for _, bad := range []struct {
			want   error
			change func(*queue.Move, *queue.Finish)
		}{
			{queue.ErrFenced, func(m *queue.Move, f *queue.Finish) { m.Fence, f.Fence = m.Fence+1, f.Fence+1 }},
			{queue.ErrFenced, func(_ *queue.Move, f *queue.Finish) { f.Fence++ }},
			{queue.ErrNotFound, func(m *queue.Move, f *queue.Finish) { m.Attempt, f.Attempt = 2, 2 }},
			{queue.ErrIllegalTransition, func(m *queue.Move, _ *queue.Finish) { m.To = "somewhere" }},
			{queue.ErrIllegalTransition, func(m *queue.Move, _ *queue.Finish) { m.To = job.Checkpointed }},
			{queue.ErrIllegalTransition, func(_ *queue.Move, f *queue.Finish) { f.Outcome.State = job.Running }},
			{queue.ErrIllegalTransition, func(m *queue.Move, _ *queue.Finish) { m.Attempt, m.To = 1, job.RunFailed }},
		} {
			e.refuse(bad.want, ops(bad.change)...)
			wantSame(e, "entry after a refused end", e.get(c.ID), before)
			if got := e.events(c.ID, 0, 10); len(got) != 0 {
				e.Fatalf("events after a refused end: %s", show(got))
			}
			if a := e.attempts(c.ID)[0]; a.State != job.Pending {
				e.Fatalf("attempt after a refused end: %s", show(a))
			}
		}
		if len(events) > 1 {
			e.apply(ops(func(*queue.Move, *queue.Finish) {})...)
		}
	}
	if got := e.wantState(c.ID, job.Completed); got.Spent.InputTokens != 7 || len(e.events(c.ID, 0, 10)) != 2 {
		e.Errorf("ended as %s with events %s", show(got), show(e.events(c.ID, 0, 10)))
	}
}

func beginRules(e *env) {
	e.enqueueOne("a")
	c := e.claimOne(epoch)
	wrong := func(change func(*job.Attempt)) queue.Begin {
		op := beginOp(c, 1, epoch)
		change(&op.Attempt)
		return op
	}
	e.refuse(queue.ErrIllegalTransition, wrong(func(a *job.Attempt) { a.Number = 0 }))
	e.refuse(queue.ErrIllegalTransition, wrong(func(a *job.Attempt) { a.Number = 2 }))
	e.refuse(queue.ErrIllegalTransition, wrong(func(a *job.Attempt) { a.State = job.Running }))
	e.refuse(queue.ErrNotFound, queue.Begin{ID: "nobody", Fence: c.Fence, Attempt: job.Attempt{Number: 1, State: job.Pending}})
	if got := e.get(c.ID); got.Attempts != 0 || got.Counted != 0 || len(e.attempts(c.ID)) != 0 {
		e.Fatalf("refused begins left %s", show(got))
	}
	e.apply(wrong(func(a *job.Attempt) { a.Session = "chosen"; a.Choice = job.Choice{Worker: "claude", Model: "m"} }))
	if got := e.get(c.ID); got.Attempts != 1 || got.Counted != 1 {
		e.Errorf("after a begin attempts %d, counted %d, want 1 and 1", got.Attempts, got.Counted)
	}
	wantSame(e, "attempt", e.attempts(c.ID), []job.Attempt{{Job: c.ID, Number: 1, Fence: c.Fence,
		Choice: job.Choice{Worker: "claude", Model: "m"}, State: job.Pending, Session: "chosen", Started: epoch}})
	e.refuse(queue.ErrIllegalTransition, beginOp(c, 2, epoch)) // the first one is still open
}

// moveRules walks every pair of run states: what the table allows is stored,
// what it does not allow is refused, and ends are for Finish.
func moveRules(e *env) {
	ways := map[job.RunState][]job.RunState{
		job.Pending:         {},
		job.Running:         {job.Running},
		job.WaitingApproval: {job.Running, job.WaitingApproval},
		job.Checkpointed:    {job.Running, job.Checkpointed},
	}
	for from, way := range ways {
		for _, to := range job.RunStates() {
			e.enqueueOne(string(from)+"-"+string(to), priority(1))
			c := e.claimOne(epoch)
			ops := []queue.Op{beginOp(c, 1, epoch)}
			for _, s := range way {
				ops = append(ops, queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, To: s})
			}
			e.apply(ops...)
			move := queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, To: to}
			want := to
			if from.CheckMove(to) != nil || to.Terminal() {
				e.refuse(queue.ErrIllegalTransition, move)
				want = from
			} else {
				e.apply(move)
			}
			if got := e.attempts(c.ID)[0].State; got != want {
				e.Errorf("after a move from %s to %s the run is %s, want %s", from, to, got, want)
			}
			// A session alone leaves the state as it is.
			e.apply(queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, Session: "s-9"})
			if a := e.attempts(c.ID)[0]; a.State != want || a.Session != "s-9" || e.get(c.ID).Session != "s-9" {
				e.Errorf("after a session of its own: %s", show(a))
			}
		}
	}
}

func finishRules(e *env) {
	ways := map[job.RunState][]job.RunState{
		job.Pending:         {},
		job.Running:         {job.Running},
		job.WaitingApproval: {job.Running, job.WaitingApproval},
		job.Checkpointed:    {job.Running, job.Checkpointed},
	}
	for from, way := range ways {
		for _, to := range job.RunStates() {
			e.enqueueOne(string(from) + "-" + string(to))
			c := e.claimOne(epoch)
			ops := []queue.Op{beginOp(c, 1, epoch)}
			for _, s := range way {
				ops = append(ops, queue.Move{ID: c.ID, Fence: c.Fence, Attempt: 1, To: s})
			}
			e.apply(ops...)
			finish := queue.Finish{ID: c.ID, Fence: c.Fence, Attempt: 1, Now: epoch, Exit: job.ExitFailed, Outcome: job.Outcome{State: to}}
			if from.CheckMove(to) != nil || !to.Terminal() {
				e.refuse(queue.ErrIllegalTransition, finish)
				e.wantState(c.ID, job.Dispatched)
				continue
			}
			e.apply(finish)
			e.wantState(c.ID, job.Completed)
			if a := e.attempts(c.ID)[0]; a.State != to || a.Ended == nil || a.Outcome == nil {
				e.Errorf("finished as %s: %s", to, show(a))
			}
		}
	}
	e.enqueueOne("rest", priority(9))
	c := e.claimOne(epoch)
	e.refuse(queue.ErrNotFound, succeed(c, 1, epoch, epoch)) // nothing has begun
	e.begin(c, epoch)
	unknown := succeed(c, 1, epoch, epoch)
	unknown.Exit = "somehow"
	if err := e.store.Apply(e.ctx, unknown); err == nil {
		e.Error("an unknown exit kind was stored")
	}
	e.refuse(queue.ErrIllegalTransition, queue.Finish{ID: c.ID, Fence: c.Fence, Now: epoch, Exit: job.ExitFailed}) // attempt 1 is open
	e.wantState(c.ID, job.Dispatched)
}

func releaseRules(e *env) {
	id := e.enqueueOne("a", func(x *queue.Entry) { x.Session, x.SessionWorker, x.Feedback = "s", "codex", "f" })
	c := e.claimOne(epoch)
	at := epoch.Add(time.Second)
	e.apply(queue.Release{ID: id, Fence: c.Fence, RunnableAt: at, Choice: 1, Waiting: "codex is down"})
	got := e.wantState(id, job.Queued)
	if !got.RunnableAt.Equal(at) || got.Choice != 1 || got.Waiting != "codex is down" || got.Holder != "" || got.LeaseUntil != nil ||
		got.Session != "s" || got.Feedback != "f" || got.Attempts != 0 || got.Fence != c.Fence {
		e.Errorf("released entry %s", show(got))
	}
	if c := e.claim(1, epoch); len(c.Entries) != 0 || !c.NextAt.Equal(at) {
		e.Errorf("claimed %s before its time", show(c))
	}
	c = e.claimOne(at)
	if c.Waiting != "" {
		e.Errorf("a claimed entry still waits: %q", c.Waiting)
	}
	e.begin(c, at)
	e.refuse(queue.ErrIllegalTransition, queue.Release{ID: id, Fence: c.Fence, RunnableAt: at}) // an attempt is open
	e.wantState(id, job.Dispatched)
}
