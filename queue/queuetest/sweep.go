package queuetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// sweeping runs test in virtual time beside Sweep, which is called after before.
// changed receives what Sweep has changed.
func sweeping(e *env, before func(*env), test func(v *env, changed <-chan []job.ID)) {
	synctest.Test(e.T, func(t *testing.T) {
		v := newEnv(t, e.open)
		before(v)
		ctx, cancel := context.WithCancelCause(t.Context())
		changed, ended := make(chan []job.ID, 100), make(chan error, 1)
		store := v.store
		go func() { ended <- store.Sweep(ctx, func(ids []job.ID) { changed <- ids }) }()
		synctest.Wait()
		test(v, changed)
		over := errors.New("the test is over")
		cancel(over)
		if err := <-ended; !errors.Is(err, over) {
			t.Errorf("Sweep ended with %v, want %v", err, over)
		}
	})
}

// claimNow makes an entry that Claim finds in virtual time and claims it.
func (e *env) claimNow(name, holder string, lease time.Duration, options ...func(*queue.Entry)) queue.Entry {
	e.Helper()
	now := time.Now().UTC()
	entry := newEntry(name, append(options, runnableAt(now))...)
	e.enqueue(entry)
	claims := e.claimAs(queue.ClaimSpec{Holder: holder, External: entry.Spec.Type == job.External, Max: 1, Now: now, Lease: lease})
	if len(claims.Entries) != 1 || claims.Entries[0].ID != entry.ID {
		e.Fatalf("claimed %v, want %s", names(claims.Entries), name)
	}
	return claims.Entries[0]
}

func outside(e *queue.Entry) { e.Spec.Type = job.External }

// wantBack waits until Sweep tells of an entry alone, which takes so long.
func (e *env) wantBack(changed <-chan []job.ID, want queue.Entry, state job.EntryState, after time.Duration) {
	e.Helper()
	began := time.Now()
	select {
	case ids := <-changed:
		if took := time.Since(began); len(ids) != 1 || ids[0] != want.ID || took < after || took > after+time.Second {
			e.Errorf("changed %v after %s, want %s (%s) after %s", ids, took, want.ID, want.Spec.Name, after)
		}
	case <-time.After(100 * time.Hour):
		e.Fatalf("%s was never taken back", want.Spec.Name)
	}
	e.wantState(want.ID, state)
}

// sweepLeases: whoever claims loses what is not extended, when its lease ends.
func sweepLeases(e *env) {
	sweeping(e, func(*env) {}, func(v *env, changed <-chan []job.ID) {
		mine := v.claimNow("mine", "i/1", 30*time.Second)
		theirs := v.claimNow("theirs", "program", 40*time.Second, outside)
		kept := v.claimNow("kept", "i/1", 30*time.Second)
		stopped := v.claimNow("stopped", "i/1", 50*time.Second)
		done, released := v.claimNow("done", "i/1", 20*time.Second), v.claimNow("released", "i/1", 20*time.Second)
		v.apply(queue.Cancel{ID: stopped.ID, Now: time.Now()}, queue.Finish{ID: done.ID, Fence: done.Fence, Now: time.Now(), Exit: job.ExitSucceeded},
			queue.Release{ID: released.ID, Fence: released.Fence, RunnableAt: time.Now()})
		n := v.begin(mine, time.Now())
		time.Sleep(10 * time.Second)
		if lost, err := v.store.Extend(v.ctx, []job.Fence{kept.Fence, done.Fence}, time.Now().Add(time.Hour)); err != nil || len(lost) != 1 {
			v.Errorf("lost %v, %v; want what is done", lost, err)
		}
		v.wantBack(changed, mine, job.Queued, 20*time.Second)
		if a := v.attempts(mine.ID)[0]; !a.Lost || a.State != job.RunFailed {
			v.Errorf("its attempt: %s", show(a))
		}
		v.refuse(queue.ErrFenced, succeed(mine, n, time.Now(), time.Now()))
		v.wantBack(changed, theirs, job.Queued, 10*time.Second)
		v.wantBack(changed, stopped, job.Completed, 10*time.Second)
		v.wantBack(changed, kept, job.Queued, time.Hour-40*time.Second)
	})
}

// sweepAfterCrash: a claim of a process that has ended meanwhile is taken back too,
// but not before its holder had the time to extend it.
func sweepAfterCrash(e *env) {
	var short, long, kept queue.Entry
	sweeping(e, func(v *env) {
		short = v.claimNow("short", "i/1", time.Second)
		long = v.claimNow("long", "program", 3*time.Hour, outside)
		kept = v.claimNow("kept", "program", time.Second, outside)
		time.Sleep(time.Hour)
		v.reopen()
	}, func(v *env, changed <-chan []job.ID) {
		time.Sleep(queue.SweepGrace / 2)
		if lost, err := v.store.Extend(v.ctx, []job.Fence{kept.Fence}, time.Now().Add(time.Hour)); err != nil || len(lost) > 0 {
			v.Errorf("lost %v, %v", lost, err)
		}
		v.wantBack(changed, short, job.Queued, queue.SweepGrace/2)
		v.wantBack(changed, kept, job.Queued, time.Hour-queue.SweepGrace/2)
		v.wantBack(changed, long, job.Queued, time.Hour-queue.SweepGrace/2)
	})
}

// sweepDeposed: a store that is deposed takes nothing back.
func sweepDeposed(e *env) {
	var held queue.Entry
	sweeping(e, func(v *env) { held = v.claimNow("held", "i/1", time.Minute) }, func(v *env, changed <-chan []job.ID) {
		v.takeOver()
		if lost, err := v.store.Extend(v.ctx, []job.Fence{held.Fence}, time.Now().Add(time.Hour)); err != nil || len(lost) > 0 {
			v.Errorf("lost %v, %v", lost, err)
		}
		time.Sleep(30 * time.Minute)
		if got := v.wantState(held.ID, job.Dispatched); got.Fence != held.Fence || len(changed) > 0 {
			v.Errorf("what another store keeps: %s", show(got))
		}
	})
}

// sweepDeadlines: what only programs outside claim expires by itself.
func sweepDeadlines(e *env) {
	sweeping(e, func(*env) {}, func(v *env, changed <-chan []job.ID) {
		now := time.Now().UTC()
		late, soon := newEntry("late", outside, deadline(now.Add(time.Hour))), newEntry("soon", outside, deadline(now.Add(10*time.Second)))
		v.enqueue(late, soon)
		v.wantBack(changed, soon, job.Expired, 10*time.Second)
		v.wantBack(changed, late, job.Expired, time.Hour-10*time.Second)
	})
}
