package queuetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// awaitWaits: an entry that waits for a person is held by nobody, and its attempt
// is recorded and charged like one that has ended.
func awaitWaits(e *env) {
	id := e.enqueueOne("a", agent("p"))
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	e.apply(queue.Append{Events: []job.Event{usageEvent(id, n, 1, epoch, 100, 0.25)}})
	now, until, draw := epoch.Add(time.Minute), epoch.Add(time.Hour), 0.125
	op := awaitOp(c, n, epoch)
	op.Now, op.Outcome.EndedAt, op.Outcome.Session = now, now, "s"
	op.Outcome.Usage = job.Usage{InputTokens: 130, CostUSD: 0.5, CostKnown: true, Steps: 1}
	op.Approval = queue.Approval{Attempt: 77, Why: "spot check", AskedAt: now, Until: &until, Default: "approve", Draw: &draw, Approved: true, By: "nobody yet", DecidedAt: &now}
	e.apply(op)
	e.reopen()
	got := e.wantState(id, job.Queued)
	if got.Held != job.HeldForApproval || got.Waiting != "waits for a person" || got.Holder != "" || got.LeaseUntil != nil || got.Attempts != 1 || got.Counted != 1 ||
		got.Spent != op.Outcome.Usage || got.SpentTime.Std() != time.Minute || got.ExitKind != "" || got.CompletedAt != nil {
		e.Errorf("who waits: %s", show(got))
	}
	wantSame(e, "what is asked", got.Approval, queue.Approval{Attempt: n, Why: "spot check", AskedAt: now, Until: &until, Default: "approve", Draw: &draw})
	a := e.attempts(id)[0]
	if a.State != job.WaitingApproval || a.Ended == nil || !a.Ended.Equal(now) || a.Outcome == nil || a.Outcome.Answer != "done" || a.Session != "s" {
		e.Errorf("its attempt: %s", show(a))
	}
	charged := queue.Account{Usage: op.Outcome.Usage, Wall: job.Duration(time.Minute), Attempts: 1}
	e.wantCharged("while it waits", charged)
	// The claim has ended: its fence writes no more, and nothing takes it back.
	e.refuse(queue.ErrFenced, op)
	e.refuse(queue.ErrFenced, succeed(c, n, epoch, now))
	e.refuse(queue.ErrFenced, queue.Release{ID: id, Fence: c.Fence})
	e.apply(queue.Reclaim{Now: until, Holders: []string{"tester"}}, queue.Reclaim{Now: until, Fences: []job.Fence{c.Fence}})
	if lost, err := e.store.Extend(e.ctx, []job.Fence{c.Fence}, until); err != nil || len(lost) != 1 {
		e.Errorf("lost %v, %v", lost, err)
	}
	wantSame(e, "after it was taken back from nobody", e.get(id), got)
	// Late events, and the answer: nothing is charged twice.
	e.apply(queue.Append{Events: []job.Event{usageEvent(id, n, 1, epoch, 100, 0.25), usageEvent(id, n, 2, epoch, 30, 0.25)}})
	charged.Usage.Steps = 2
	e.wantCharged("after late events", charged)
	at := epoch.Add(2 * time.Hour)
	e.apply(queue.Decide{ID: id, Attempt: n, Approved: true, By: "ann", Comment: "fine", Now: at})
	charged.Completed = 1
	e.wantCharged("after the answer", charged)
	e.reopen()
	got = e.wantState(id, job.Completed)
	if got.ExitKind != job.ExitSucceeded || !got.CompletedAt.Equal(at) || got.Held != "" || got.Waiting != "" || got.ErrorClass != job.NoError || got.Rejections != 0 ||
		got.SpentTime.Std() != time.Minute || got.Spent != op.Outcome.Usage {
		e.Errorf("approved %s", show(got))
	}
	wantSame(e, "what was said", got.Approval, queue.Approval{Attempt: n, Why: "spot check", AskedAt: now, Until: &until, Default: "approve", Draw: &draw,
		Approved: true, DecidedAt: &at, By: "ann", Comment: "fine"})
	if a := e.attempts(id)[0]; a.State != job.RunCompleted || a.Outcome.State != job.RunCompleted || !a.Ended.Equal(now) || a.Outcome.Answer != "done" {
		e.Errorf("its attempt: %s", show(a))
	}
	e.apply(queue.Append{Events: []job.Event{usageEvent(id, n, 2, epoch, 30, 0.25)}})
	e.wantCharged("after events again", charged)
	e.check()
}

// wantCharged compares the whole ledger.
func (e *env) wantCharged(when string, want queue.Account) {
	e.Helper()
	list, err := e.store.Accounts(e.ctx, queue.AccountFilter{})
	if err != nil {
		e.Fatal(err)
	}
	wantSame(e, "charged "+when, list, []queue.Account{want})
}

// awaitRules walks the states of a run: only one that runs can wait for a person.
func awaitRules(e *env) {
	ways := map[job.RunState][]job.RunState{
		job.Pending: {}, job.Running: {job.Running}, job.WaitingApproval: {job.Running, job.WaitingApproval}, job.Checkpointed: {job.Running, job.Checkpointed},
	}
	for from, way := range ways {
		id := e.enqueueOne(string(from), priority(9))
		c := e.claimOne(epoch)
		ops := []queue.Op{beginOp(c, 1, epoch)}
		for _, s := range way {
			ops = append(ops, queue.Move{ID: id, Fence: c.Fence, Attempt: 1, To: s})
		}
		e.apply(ops...)
		op := awaitOp(c, 1, epoch)
		if from != job.Running {
			before, attempts := e.get(id), e.attempts(id)
			e.refuse(queue.ErrIllegalTransition, op)
			wantSame(e, "refused", e.get(id), before)
			wantSame(e, "its attempt", e.attempts(id), attempts)
			continue
		}
		for what, wrong := range map[string]func(*queue.Await) error{
			"an old fence":        func(a *queue.Await) error { a.Fence--; return queue.ErrFenced },
			"another attempt":     func(a *queue.Await) error { a.Attempt++; return queue.ErrNotFound },
			"no attempt":          func(a *queue.Await) error { a.Attempt = 0; return queue.ErrNotFound },
			"nobody":              func(a *queue.Await) error { a.ID = "nobody"; return queue.ErrNotFound },
			"no end":              func(a *queue.Await) error { a.Outcome.State = job.Running; return queue.ErrIllegalTransition },
			"a state of no table": func(a *queue.Await) error { a.Outcome.State = "odd"; return queue.ErrIllegalTransition },
		} {
			bad := op
			want := wrong(&bad)
			if err := e.store.Apply(e.ctx, bad); !errors.Is(err, want) {
				e.Errorf("%s: got %v, want %v", what, err, want)
			}
		}
		e.apply(op)
		e.refuse(queue.ErrFenced, op)
	}
	// Nobody is asked about what somebody has cancelled, or a newer one has replaced.
	for _, name := range []string{"cancelled", "superseded"} {
		id := e.enqueueOne(name, priority(99), duplicate(job.Serialize, name))
		c := e.claimOne(epoch)
		n := e.begin(c, epoch)
		if name == "cancelled" {
			e.apply(queue.Cancel{ID: id, Now: epoch})
		} else {
			e.enqueueOne("newer", duplicate(job.LatestWins, name), runnableAt(epoch.Add(time.Hour)))
		}
		e.apply(awaitOp(c, n, epoch))
		if got := e.wantState(id, job.Completed); got.ExitKind != job.ExitCancelled || got.Held != "" || got.Approval != nil {
			e.Errorf("%s: %s", name, show(got))
		}
		if a := e.attempts(id)[0]; a.State != job.RunCompleted {
			e.Errorf("%s: its attempt %s", name, show(a))
		}
	}
	e.check()
}

// decideRejects: a rejection with retry goes back to the queue with what was said,
// as often as somebody allows, and without is a dead letter.
func decideRejects(e *env) {
	entry := e.asked("a", epoch)
	id := entry.ID
	before := e.charged()
	later := epoch.Add(time.Hour)
	e.refuse(queue.ErrIllegalTransition, queue.Decide{ID: id, Attempt: 2, Approved: true, Now: later})
	e.refuse(queue.ErrIllegalTransition, queue.Decide{ID: id, Attempt: 0, Now: later})
	e.apply(queue.Decide{ID: id, Attempt: 1, By: "ann", Comment: "too long", Now: later, DeadLetter: "not used", Retry: &queue.Retry{
		RunnableAt: later, Choice: 1, Session: "s", SessionWorker: "codex", Feedback: "a person said: too long", Waiting: "rejected"}})
	got := e.wantState(id, job.Queued)
	if got.Held != "" || got.Rejections != 1 || got.ErrorClass != job.HumanRejected || !got.RunnableAt.Equal(later) || got.Choice != 1 || got.Session != "s" ||
		got.SessionWorker != "codex" || got.Feedback != "a person said: too long" || got.Waiting != "rejected" || got.DeadLetter != "" || got.Counted != 1 {
		e.Errorf("to be done again: %s", show(got))
	}
	if a := got.Approval; a == nil || a.Approved || a.DecidedAt == nil || !a.DecidedAt.Equal(later) || a.By != "ann" || a.Comment != "too long" {
		e.Errorf("what was said: %s", show(a))
	}
	if a := e.attempts(id)[0]; a.State != job.RunFailed || a.Outcome.State != job.RunFailed || a.Outcome.Class != job.HumanRejected || a.Outcome.Message != "too long" ||
		a.Outcome.Answer != "done" || a.Lost || !a.Ended.Equal(epoch) {
		e.Errorf("the attempt that was rejected: %s", show(a))
	}
	wantSame(e, "charged by the answer", e.charged(), before)
	if c := e.claim(9, later.Add(-time.Second)); len(c.Entries) != 0 || !c.NextAt.Equal(later) {
		e.Errorf("before it is to be done again: %s", show(c))
	}
	c := e.claimOne(later)
	n := e.begin(c, later)
	// A second answer to the first question comes too late.
	e.refuse(queue.ErrIllegalTransition, queue.Decide{ID: id, Attempt: 1, Approved: true, Now: later})
	e.apply(awaitOp(c, n, later))
	e.refuse(queue.ErrIllegalTransition, queue.Decide{ID: id, Attempt: 1, Approved: true, Now: later})
	if got := e.get(id).Approval; got.Attempt != n || got.DecidedAt != nil || got.Comment != "" {
		e.Errorf("the second question: %s", show(got))
	}
	e.apply(queue.Decide{ID: id, Attempt: n, By: "timeout", Now: later, DeadLetter: "rejected twice"})
	got = e.wantState(id, job.Completed)
	if got.ExitKind != job.ExitFailed || got.DeadLetter != "rejected twice" || got.ErrorClass != job.HumanRejected || got.Rejections != 2 || got.Held != "" {
		e.Errorf("rejected for good: %s", show(got))
	}
	wantSame(e, "dead letters", e.deadLetterNames(queue.Filter{ErrorClass: job.HumanRejected}), []string{"a"})
	e.reopen()
	e.apply(queue.Drop{ID: id, Now: later})
	wantSame(e, "dead letters", e.deadLetterNames(queue.Filter{}), []string{})
	e.check()
}

// charged returns the whole ledger.
func (e *env) charged() []queue.Account {
	e.Helper()
	return e.accounts(queue.AccountFilter{By: queue.Dimensions()})
}

// decideOnce lets many people answer at once, each in another way: one of them did.
func decideOnce(e *env) {
	const people = 12
	for round := range 5 {
		entry := e.asked(string(rune('a'+round)), epoch)
		var said atomic.Int64
		var wg sync.WaitGroup
		for p := range people {
			wg.Go(func() {
				op := queue.Decide{ID: entry.ID, Attempt: 1, Approved: p%3 == 0, By: string(rune('A' + p)), Now: epoch, DeadLetter: "no"}
				if p%3 == 1 {
					op.Retry = &queue.Retry{RunnableAt: epoch.Add(time.Hour)}
				}
				err := e.store.Apply(e.ctx, op)
				switch {
				case err == nil && !said.CompareAndSwap(0, int64(p+1)):
					e.Errorf("%d and %d have both answered", said.Load()-1, p)
				case err != nil && !errors.Is(err, queue.ErrIllegalTransition):
					e.Errorf("%d: %v", p, err)
				}
			})
		}
		wg.Wait()
		got := e.get(entry.ID)
		if by := said.Load(); by == 0 || got.Approval.By != string(rune('A'+by-1)) || got.Approval.Approved != (got.ExitKind == job.ExitSucceeded) {
			e.Errorf("answered by %d: %s", by, show(got))
		}
	}
	e.check()
}

// withdrawAsked: an entry that is taken away while a person is asked is Cancelled,
// and its attempt RunCancelled.
func withdrawAsked(e *env) {
	at := epoch.Add(time.Minute)
	for name, withdraw := range map[string]func(id job.ID){
		"cancel": func(id job.ID) { e.apply(queue.Cancel{ID: id, Now: at}) },
		"skip":   func(id job.ID) { e.apply(queue.Skip{ID: id, Why: "not any more", Now: at}) },
		"superseded": func(job.ID) {
			e.enqueueOne("newer", duplicate(job.LatestWins, "superseded"), runnableAt(epoch.Add(time.Hour)))
		},
	} {
		entry := e.asked(name, epoch, duplicate(job.Serialize, name))
		next := e.enqueueOne("after "+name, duplicate(job.Serialize, name), runnableAt(epoch.Add(time.Hour)))
		before := e.charged()
		withdraw(entry.ID)
		got := e.wantState(entry.ID, job.Cancelled)
		if got.Held != "" || got.CompletedAt == nil || got.ErrorClass != job.CancelledClass {
			e.Errorf("%s: %s", name, show(got))
		}
		if a := e.attempts(entry.ID)[0]; a.State != job.RunCancelled || a.Outcome.State != job.RunCancelled || a.Outcome.Class != job.CancelledClass || a.Outcome.Answer != "done" {
			e.Errorf("%s: its attempt %s", name, show(a))
		}
		e.refuse(queue.ErrIllegalTransition, queue.Decide{ID: entry.ID, Attempt: 1, Approved: true, Now: at})
		wantSame(e, "charged", e.charged(), before)
		if name != "superseded" {
			if got := e.get(next); got.WaitsFor != "" {
				e.Errorf("%s: who waited for it: %s", name, show(got))
			}
		}
		e.check()
	}
}

// decideShares: what waits for the result of an entry waits for the person, too,
// and does not expire meanwhile.
func decideShares(e *env) {
	for _, approved := range []bool{true, false} {
		key := "k" + show(approved)
		leader := e.asked("leader "+key, epoch, duplicate(job.Serialize, key))
		follower := e.enqueueOne("follower "+key, duplicate(job.Coalesce, key), deadline(epoch.Add(time.Minute)))
		next := e.enqueueOne("next "+key, duplicate(job.Serialize, key))
		later := epoch.Add(time.Hour)
		if c := e.claim(9, later); len(c.Entries) != 0 || len(c.Expired) != 0 {
			e.Fatalf("while a person is asked a claim gives %s", show(c))
		}
		e.apply(queue.Decide{ID: leader.ID, Attempt: 1, Approved: approved, DeadLetter: "no", Now: later})
		want := job.ExitFailed
		if approved {
			want = job.ExitSucceeded
		}
		if got := e.wantState(follower, job.Completed); got.ExitKind != want || e.attempts(follower)[0].Job != leader.ID {
			e.Errorf("who shares its result: %s", show(got))
		}
		wantSame(e, "whose turn it is", names(e.claim(1, later).Entries), []string{string(e.get(next).Spec.Name)})
	}
	e.check()
}
