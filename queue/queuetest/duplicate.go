package queuetest

import (
	"errors"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// fail is the Finish of an attempt after which there is none.
func fail(c queue.Entry, attempt int, now time.Time) queue.Finish {
	return queue.Finish{ID: c.ID, Fence: c.Fence, Attempt: attempt, Now: now, Exit: job.ExitFailed, DeadLetter: "spent",
		Outcome: job.Outcome{State: job.RunFailed, Class: job.Auth, StartedAt: now, EndedAt: now}}
}

// stopped is the Finish of an attempt that was stopped because somebody said so.
func stopped(c queue.Entry, attempt int, now time.Time) queue.Finish {
	return queue.Finish{ID: c.ID, Fence: c.Fence, Attempt: attempt, Now: now, Exit: job.ExitCancelled,
		Outcome: job.Outcome{State: job.RunCancelled, Class: job.CancelledClass, StartedAt: now, EndedAt: now}}
}

// wantClaimed claims all that can run at now and compares their names.
func (e *env) wantClaimed(now time.Time, want ...string) []queue.Entry {
	e.Helper()
	c := e.claim(99, now)
	if got := strings.Join(names(c.Entries), " "); got != strings.Join(want, " ") {
		e.Fatalf("claimed %q, want %q", got, strings.Join(want, " "))
	}
	return c.Entries
}

// wantWaiting fails the test unless an entry waits for another.
func (e *env) wantWaiting(id, other job.ID, coalesced bool) {
	e.Helper()
	got := e.wantState(id, job.Queued)
	if got.WaitsFor != other || (got.CoalescedWith == other) != coalesced || !strings.Contains(got.Waiting, string(other)) {
		e.Fatalf("entry %s, want it to wait for %s, coalesced %v", show(got), other, coalesced)
	}
}

// duplicateReject refuses a submission as a whole, and says why.
func duplicateReject(e *env) {
	first := e.enqueueOne("first", duplicate(job.Serialize, "k"))
	refused := newEntry("second", duplicate(job.Reject, "k"))
	err := e.store.Enqueue(e.ctx, newBatch("other.yaml"), []queue.Entry{newEntry("beside"), refused})
	dup, ok := errors.AsType[*queue.DuplicateError](err)
	if !ok || !errors.Is(err, queue.ErrDuplicate) {
		e.Fatalf("got error %v, want a DuplicateError", err)
	}
	if want := (queue.DuplicateError{Key: "k", ID: refused.ID, Name: "second", Other: first, OtherJob: "first"}); *dup != want {
		e.Errorf("got %+v, want %+v", *dup, want)
	}
	for _, part := range []string{"first", "second", string(first), string(refused.ID), `"k"`} {
		if !strings.Contains(err.Error(), part) {
			e.Errorf("the error does not name %s: %v", part, err)
		}
	}
	if _, total := e.list(queue.Filter{}); total != 1 {
		e.Fatalf("%d entries are stored after a refused enqueue, want 1", total)
	}
	if list, _ := e.store.Batches(e.ctx, "other.yaml"); len(list) != 0 {
		e.Errorf("the batch of a refused enqueue is stored: %s", show(list))
	}
	alone := newEntry("third", duplicate(job.Reject, "k"))
	if err := e.store.Enqueue(e.ctx, newBatch("alone.yaml"), []queue.Entry{alone}); !errors.Is(err, queue.ErrDuplicate) {
		e.Errorf("a single one: got error %v, want %v", err, queue.ErrDuplicate)
	}
	// Neither another tenant, nor another key, nor none is in the way.
	e.enqueue(newEntry("tenant", duplicate(job.Reject, "k"), tenant("other")), newEntry("key", duplicate(job.Reject, "l")), newEntry("none"))
	for _, c := range e.wantClaimed(epoch, "first", "tenant", "key", "none") {
		e.apply(succeed(c, e.begin(c, epoch), epoch, epoch))
	}
	e.enqueue(refused) // the key is free
	if err := e.store.Enqueue(e.ctx, e.batch, []queue.Entry{newEntry("x", duplicate("maybe", "k"))}); err == nil {
		e.Error("an unknown policy was stored")
	}
	// Within one submission too: the first has the key.
	two := []queue.Entry{newEntry("a", duplicate(job.Coalesce, "m")), newEntry("b", duplicate(job.Reject, "m"))}
	if err := e.store.Enqueue(e.ctx, e.batch, two); !errors.Is(err, queue.ErrDuplicate) {
		e.Errorf("two of one submission: got error %v, want %v", err, queue.ErrDuplicate)
	}
}

// duplicateKeys checks what makes a key, by policy and by what is asked.
func duplicateKeys(e *env) {
	same := func(x *queue.Entry) { x.Spec.Instructions = "the same" }
	derived := func(x *queue.Entry) { same(x); x.Spec.OnDuplicate = job.Coalesce }
	first := newEntry("first", derived)
	e.enqueue(first, newEntry("second", derived), newEntry("other", derived, func(x *queue.Entry) { x.Spec.Worker = "claude" }),
		newEntry("each", same), newEntry("key-alone", duplicate("", "k")), newEntry("key-again", duplicate("", "k")))
	key := job.DeriveKey(&first.Spec)
	for name, want := range map[job.Name]string{"first": key, "second": key, "each": "", "key-alone": "k", "key-again": "k"} {
		list, _ := e.list(queue.Filter{Name: name})
		if got := list[0]; got.Key != want || (got.WaitsFor != "") != (name == "second" || name == "key-again") {
			e.Errorf("entry %s, want the key %q", show(got), want)
		}
	}
	e.wantClaimed(epoch, "first", "other", "each", "key-alone")
}

// duplicateCoalesce: one runs, and its result is that of all.
func duplicateCoalesce(e *env) {
	for _, exit := range []job.ExitKind{job.ExitSucceeded, job.ExitFailed} {
		key := duplicate(job.Coalesce, string(exit))
		first, second := e.enqueueOne("1-"+string(exit), key), e.enqueueOne("2-"+string(exit), key, runnableAt(epoch.Add(time.Hour)))
		c := e.wantClaimed(epoch, "1-"+string(exit))[0]
		n := e.begin(c, epoch)
		third := e.enqueueOne("3-"+string(exit), key)
		e.wantWaiting(second, first, true)
		e.wantWaiting(third, first, true)
		wantSame(e, "attempts of a follower", e.attempts(third), e.attempts(first))
		// A retry is not the end: they go on waiting.
		e.apply(queue.Finish{ID: first, Fence: c.Fence, Attempt: n, Outcome: job.Outcome{State: job.RunFailed}, Now: epoch, Retry: queue.Retry{RunnableAt: epoch}})
		e.wantWaiting(second, first, true)
		c = e.wantClaimed(epoch, "1-"+string(exit))[0]
		n = e.begin(c, epoch)
		now := epoch.Add(time.Minute)
		finish := succeed(c, n, epoch, now)
		if exit == job.ExitFailed {
			finish = fail(c, n, now)
		}
		finish.Outcome.Usage = job.Usage{InputTokens: 5}
		e.apply(finish)
		leader := e.wantState(first, job.Completed)
		for _, id := range []job.ID{second, third} {
			got := e.wantState(id, job.Completed)
			if got.ExitKind != exit || got.DeadLetter != leader.DeadLetter || got.CompletedAt == nil || !got.CompletedAt.Equal(now) ||
				got.CoalescedWith != first || got.WaitsFor != "" || got.Waiting != "" || got.Spent.Tokens() != 0 || got.Attempts != 0 {
				e.Errorf("follower %s of %s", show(got), show(leader))
			}
			wantSame(e, "attempts of a follower", e.attempts(id), e.attempts(first))
		}
		followers, _ := e.list(queue.Filter{CoalescedWith: first})
		wantSame(e, "followers", names(followers), []string{"2-" + string(exit), "3-" + string(exit)})
		if again := e.enqueueOne("4-"+string(exit), key); e.get(again).WaitsFor != "" {
			e.Error("a job waits for one that has ended")
		} else {
			e.apply(queue.Cancel{ID: again, Now: now})
		}
	}
}

// duplicateHeir: a leader that leaves without a result is followed by the
// first that waited for it, in each way of leaving.
func duplicateHeir(e *env) {
	now := epoch.Add(time.Minute)
	for what, leave := range map[string]func(job.ID){
		"cancelled": func(id job.ID) { e.apply(queue.Cancel{ID: id, Now: now}) },
		"expired":   func(job.ID) { e.claimAs(queue.ClaimSpec{Holder: "tester", Now: now, Count: true}) },
		"stopped": func(id job.ID) {
			c := e.claimOne(epoch)
			e.apply(stopped(c, e.begin(c, epoch), now))
		},
		"lost": func(id job.ID) {
			e.claimOne(epoch)
			e.apply(queue.Cancel{ID: id, Now: epoch}, queue.Reclaim{Now: now, Holders: []string{"tester"}})
		},
	} {
		key := duplicate(job.Coalesce, what)
		leader := []func(*queue.Entry){key}
		if what == "expired" {
			leader = append(leader, deadline(now))
		}
		first, heir, third := e.enqueueOne(what+"-1", leader...), e.enqueueOne(what+"-2", key), e.enqueueOne(what+"-3", key)
		next := e.enqueueOne(what+"-4", duplicate(job.Serialize, what))
		leave(first)
		if got := e.get(first); !got.State.Terminal() {
			e.Fatalf("%s: %s", what, show(got))
		}
		if got := e.wantState(heir, job.Queued); got.WaitsFor != "" || got.CoalescedWith != "" || got.Waiting != "" || !got.RunnableAt.Equal(now) {
			e.Errorf("%s: heir %s", what, show(got))
		}
		e.wantWaiting(third, heir, true)
		e.wantWaiting(next, heir, false)
		c := e.wantClaimed(now, what+"-2")[0]
		e.apply(succeed(c, e.begin(c, now), now, now))
		if got := e.wantState(third, job.Completed); got.CoalescedWith != heir || got.ExitKind != job.ExitSucceeded {
			e.Errorf("%s: follower %s", what, show(got))
		}
		c = e.wantClaimed(now, what+"-4")[0]
		e.apply(succeed(c, e.begin(c, now), now, now))
	}
}

// duplicateFollowerLeaves: followers may go without touching the others.
func duplicateFollowerLeaves(e *env) {
	key := duplicate(job.Coalesce, "k")
	end := epoch.Add(time.Minute)
	first, gone := e.enqueueOne("first", key), e.enqueueOne("gone", key)
	late, stays := e.enqueueOne("late", key, deadline(end)), e.enqueueOne("stays", key)
	e.apply(queue.Cancel{ID: gone, Now: epoch})
	if got := e.wantState(gone, job.Cancelled); got.CoalescedWith != "" || got.WaitsFor != "" || len(e.attempts(gone)) != 0 {
		e.Errorf("cancelled follower %s", show(got))
	}
	c := e.wantClaimed(epoch, "first")[0]
	// A deadline is for being started, and the work has been.
	if later := e.claim(1, end.Add(time.Hour)); len(later.Expired) != 0 || !later.NextAt.IsZero() {
		e.Errorf("got %s, want nothing to expire while the leader runs", show(later))
	}
	// The leader waits again: what nobody has started expires.
	e.apply(queue.Release{ID: c.ID, Fence: c.Fence, RunnableAt: end.Add(time.Hour)})
	if later := e.claim(1, end); len(later.Expired) != 1 || later.Expired[0] != late {
		e.Errorf("expired %v, want %s", later.Expired, late)
	}
	e.wantWaiting(stays, first, true)
}

// duplicateLatestWins: the newest takes the place of all, and starts when what
// runs of them is gone.
func duplicateLatestWins(e *env) {
	key := duplicate(job.LatestWins, "k")
	runs := e.enqueueOne("runs", key)
	c := e.wantClaimed(epoch, "runs")[0]
	n := e.begin(c, epoch)
	next, follows := e.enqueueOne("next", duplicate(job.Serialize, "k")), e.enqueueOne("follows", duplicate(job.Coalesce, "k"))
	at := epoch.Add(time.Second)
	newest := newEntry("newest", key, func(x *queue.Entry) { x.CreatedAt, x.RunnableAt = at, at })
	e.enqueue(newest)
	for _, id := range []job.ID{next, follows} {
		got := e.wantState(id, job.Cancelled)
		if got.SupersededBy != newest.ID || !strings.Contains(got.Waiting, "newest") || !strings.Contains(got.Waiting, string(newest.ID)) ||
			got.CompletedAt == nil || !got.CompletedAt.Equal(at) || got.WaitsFor != "" || got.CoalescedWith != "" {
			e.Errorf("queued older one: %s", show(got))
		}
	}
	if got := e.wantState(runs, job.Dispatched); !got.CancelRequested || got.SupersededBy != newest.ID || got.Fence != c.Fence {
		e.Errorf("dispatched older one: %s", show(got))
	}
	stop, _ := e.list(queue.Filter{States: []job.EntryState{job.Dispatched}, CancelRequested: true})
	wantSame(e, "to be stopped", names(stop), []string{"runs"})
	superseded, _ := e.list(queue.Filter{SupersededBy: newest.ID})
	wantSame(e, "superseded", names(superseded), []string{"runs", "next", "follows"})
	e.wantWaiting(newest.ID, runs, false)
	e.wantClaimed(at)
	// A still newer one takes the place of the one that waits.
	last := newEntry("last", key)
	e.enqueue(last)
	e.wantState(newest.ID, job.Cancelled)
	e.wantWaiting(last.ID, runs, false)
	end := at.Add(time.Second)
	e.apply(stopped(c, n, end))
	if got := e.wantState(runs, job.Completed); got.ExitKind != job.ExitCancelled || !strings.Contains(got.Waiting, "superseded by job newest") {
		e.Errorf("stopped one: %s", show(got))
	}
	if got := e.wantClaimed(end, "last")[0]; got.ID != last.ID || !got.RunnableAt.Equal(end) {
		e.Errorf("newest one: %s", show(got))
	}
}

// duplicateNoWayBack: what is superseded does not run again, however its claim ends.
func duplicateNoWayBack(e *env) {
	now := epoch.Add(time.Minute)
	for what, end := range map[string]func(c queue.Entry) queue.Op{
		"retry": func(c queue.Entry) queue.Op {
			return queue.Finish{ID: c.ID, Fence: c.Fence, Attempt: e.begin(c, epoch), Outcome: job.Outcome{State: job.RunFailed}, Now: now,
				Retry: queue.Retry{RunnableAt: now.Add(time.Hour)}}
		},
		"release": func(c queue.Entry) queue.Op {
			return queue.Release{ID: c.ID, Fence: c.Fence, Now: now, RunnableAt: now.Add(time.Hour), Waiting: "later"}
		},
		"reclaim": func(queue.Entry) queue.Op {
			return queue.Reclaim{Now: now, Holders: []string{"tester"}, Message: "killed"}
		},
	} {
		old := e.enqueueOne(what+"-old", duplicate(job.LatestWins, what))
		op := end(e.claimOne(epoch))
		e.enqueueOne(what+"-new", duplicate(job.LatestWins, what))
		e.apply(op)
		got := e.wantState(old, job.Completed)
		if got.ExitKind != job.ExitCancelled || !got.CompletedAt.Equal(now) || !strings.Contains(got.Waiting, what+"-new") || got.Holder != "" {
			e.Errorf("%s: %s", what, show(got))
		}
		c := e.wantClaimed(now, what+"-new")[0]
		e.apply(succeed(c, e.begin(c, now), now, now))
	}
}

// duplicateSerialize: one after the other, in the order of submission,
// whatever their priority and class.
func duplicateSerialize(e *env) {
	key := duplicate(job.Serialize, "k")
	e.enqueue(newEntry("a", key, priority(-1)), newEntry("b", key), newEntry("c", key, priority(5)), newEntry("free"), newEntry("d", key))
	b, _ := e.list(queue.Filter{Name: "b"})
	c, _ := e.list(queue.Filter{Name: "c"})
	d, _ := e.list(queue.Filter{Name: "d"})
	e.wantWaiting(c[0].ID, b[0].ID, false)
	held := e.wantClaimed(epoch, "free", "a")[1]
	e.apply(queue.Cancel{ID: b[0].ID, Now: epoch})
	e.wantWaiting(c[0].ID, held.ID, false)
	e.wantWaiting(d[0].ID, c[0].ID, false)
	e.wantClaimed(epoch)
	now := epoch.Add(time.Minute)
	e.apply(fail(held, e.begin(held, epoch), now)) // its failure is its own
	held = e.wantClaimed(now, "c")[0]
	if !held.RunnableAt.Equal(now) {
		e.Errorf("it could run from %v on, want %v, when its turn came", held.RunnableAt, now)
	}
	e.apply(queue.Reclaim{Now: now, Holders: []string{"tester"}})
	e.wantWaiting(d[0].ID, held.ID, false)
	held = e.wantClaimed(now, "c", "free")[0]
	e.apply(succeed(held, e.begin(held, now), now, now))
	e.wantClaimed(now, "d")
}

// duplicateDurable opens the store again at each step.
func duplicateDurable(e *env) {
	key := duplicate(job.Coalesce, "k")
	first, second := e.enqueueOne("first", key), e.enqueueOne("second", key)
	third := e.enqueueOne("third", duplicate(job.Serialize, "k"))
	e.reopen()
	if err := e.store.Enqueue(e.ctx, e.batch, []queue.Entry{newEntry("refused", duplicate(job.Reject, "k"))}); !errors.Is(err, queue.ErrDuplicate) {
		e.Fatalf("after opening again: got error %v, want %v", err, queue.ErrDuplicate)
	}
	c := e.wantClaimed(epoch, "first")[0]
	e.reopen()
	e.wantClaimed(epoch)
	e.wantWaiting(second, first, true)
	e.wantWaiting(third, first, false)
	e.apply(succeed(c, e.begin(c, epoch), epoch, epoch))
	e.reopen()
	if got := e.wantState(second, job.Completed); got.CoalescedWith != first {
		e.Errorf("follower %s", show(got))
	}
	e.wantClaimed(epoch, "third")
	newest := e.enqueueOne("newest", duplicate(job.LatestWins, "k"))
	e.reopen()
	e.apply(queue.Reclaim{Now: epoch, Holders: []string{"tester"}, Message: "the scheduler was killed"})
	if got := e.wantState(third, job.Completed); got.ExitKind != job.ExitCancelled || got.SupersededBy != newest {
		e.Errorf("superseded one after a kill: %s", show(got))
	}
	e.wantClaimed(epoch, "newest")
}
