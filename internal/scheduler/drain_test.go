package scheduler_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
)

// TestDrain begins nothing and waits until the last run has ended; given up, work
// goes on.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, openStore(t), 1, nil)
		w.start()
		defer w.end()
		long := w.submit(task("long", time.Hour))[0]
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		drained := make(chan error, 1)
		go func() { drained <- w.sched.Drain(ctx) }()
		synctest.Wait()
		next := w.submit(task("next", time.Second))[0]
		w.wait(time.Minute)
		w.wantState(next, job.Queued)
		e := w.get(next)
		if why := w.sched.Explain.Statuses(t.Context())(&e).Waiting; why == nil || why.Reason != job.WaitScheduler {
			t.Errorf("while the scheduler drains, a job waits for %v", why)
		}
		cancel()
		if err := <-drained; !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
		w.wait(time.Minute)
		w.wantState(next, job.Completed)
		go func() { drained <- w.sched.Drain(t.Context()) }()
		w.wait(time.Minute)
		select {
		case err := <-drained:
			t.Errorf("drained while a job runs: %v", err)
		default:
		}
		w.wait(time.Hour)
		if err := <-drained; err != nil {
			t.Errorf("drained: %v", err)
		}
		w.wantState(long, job.Completed)
	})
}
