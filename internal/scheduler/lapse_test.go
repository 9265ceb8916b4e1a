package scheduler_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// stuckStore is a store on a disk that does not answer while leases are extended,
// until it may go on.
type stuckStore struct {
	*sqlite.Store
	goOn chan struct{}
}

func (s *stuckStore) Extend(ctx context.Context, fences []job.Fence, until time.Time) ([]job.Fence, error) {
	<-s.goOn
	return s.Store.Extend(ctx, fences, until)
}

// TestPermitsOfAStuckStore: while the disk of the store hangs, heartbeats do not
// renew the permits of runs whose ends could not be recorded; after that they do.
func TestPermitsOfAStuckStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = scheduler.DefaultLease / 3
		store := &stuckStore{openStore(t), make(chan struct{})}
		w := newWorld(t, store.Store, 1, func(cfg *scheduler.Config) { cfg.Store = store })
		w.start()
		id := w.submit(task("long", 2*every+time.Minute))[0]
		renews := func(after time.Duration, want bool) {
			t.Helper()
			if w.wait(after); w.sched.RenewPermits() != want {
				t.Fatalf("permits are renewed is %t, want %t", !want, want)
			}
		}
		renews(0, true)
		renews(every, true) // an extension begins, and hangs
		renews(every-time.Second, true)
		renews(2*time.Second, false)
		renews(time.Second, false)
		close(store.goOn)
		renews(0, true)
		w.wait(2 * time.Minute)
		w.wantState(id, job.Completed)
		w.end()
	})
}

// TestCoreOfAnEarlierRelease: a core that does not say that permits lapse works, and
// the log tells what it does not do; where none is to lapse there is nothing to tell.
func TestCoreOfAnEarlierRelease(t *testing.T) {
	for _, validity := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			w := newWorld(t, openStore(t), 1, func(cfg *scheduler.Config) {
				cfg.Log = zerolog.New(zerolog.SyncWriter(&log))
				cfg.Settings.PermitValidity = job.Duration(validity)
			})
			w.start()
			id := w.submit(task("short", time.Second))[0]
			w.wait(time.Minute)
			w.wantState(id, job.Completed)
			w.end()
			if told := bytes.Contains(log.Bytes(), []byte("of an earlier release")); told != (validity > 0) {
				t.Errorf("with a validity of %s, the log says so is %t:\n%s", validity, told, &log)
			}
		})
	}
}
