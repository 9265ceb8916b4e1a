package queuetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// takeOver opens the store again beside the one that is open, as if that one's
// process stood still, and returns the old handle.
func (e *env) takeOver() (old queue.Store) {
	e.Helper()
	old, e.store = e.store, e.open(e.T, e.dir)
	e.Cleanup(func() {
		if err := old.Close(); err != nil {
			e.Errorf("close the deposed store: %v", err)
		}
	})
	return old
}

// epochRefusesTheOld: who was deposed writes nothing any more; what it reads is right, or it is told.
func epochRefusesTheOld(e *env) {
	e.enqueueOne("claimed", priority(1))
	e.enqueueOne("late", deadline(epoch.Add(time.Second)))
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	old := e.takeOver()
	before, _ := e.list(queue.Filter{})
	for what, write := range map[string]func() error{
		"enqueue":   func() error { return old.Enqueue(e.ctx, e.batch, []queue.Entry{newEntry("new")}) },
		"new batch": func() error { return old.Enqueue(e.ctx, newBatch("other"), []queue.Entry{newEntry("new")}) },
		"finish":    func() error { return old.Apply(e.ctx, succeed(c, n, epoch, epoch)) },
		"reclaim":   func() error { return old.Apply(e.ctx, queue.Reclaim{Now: epoch, Holders: []string{"tester"}}) },
		"grant": func() error {
			return old.Apply(e.ctx, queue.SetGrant{Grant: queue.Grant{Owner: queue.Owner{Tenant: "t"}, Dead: true}})
		},
		"claim": func() error {
			_, err := old.Claim(e.ctx, queue.ClaimSpec{Holder: "tester", Max: 1, Now: epoch, Lease: lease})
			return err
		},
		"expire": func() error {
			_, err := old.Heads(e.ctx, queue.HeadsSpec{Each: 1, Now: epoch.Add(time.Hour)})
			return err
		},
		"extend": func() error {
			_, err := old.Extend(e.ctx, []job.Fence{c.Fence}, epoch.Add(time.Hour))
			return err
		},
		"prune": func() error {
			_, err := old.Prune(e.ctx, queue.PruneSpec{Before: epoch.Add(time.Hour), Max: 1})
			return err
		},
	} {
		for range 2 { // it is not forgotten after the first
			if err := write(); !errors.Is(err, queue.ErrDeposed) {
				e.Errorf("%s by a deposed store: %v, want %v", what, err, queue.ErrDeposed)
			}
		}
	}
	after, _ := e.list(queue.Filter{})
	wantSame(e, "after refused writes", after, before)
	if got, err := old.Get(e.ctx, c.ID); !errors.Is(err, queue.ErrDeposed) && (err != nil || got.State != job.Dispatched) {
		e.Errorf("read by a deposed store: %s, %v", show(got), err)
	}
	e.apply(succeed(c, n, epoch, epoch))
	older := e.takeOver()
	for _, s := range []queue.Store{old, older} {
		if err := s.Apply(e.ctx, queue.CloseBatch{ID: e.batch.ID, Now: epoch}); !errors.Is(err, queue.ErrDeposed) {
			e.Errorf("got error %v, want %v", err, queue.ErrDeposed)
		}
	}
	e.apply(queue.CloseBatch{ID: e.batch.ID, Now: epoch})
}

// epochUnderWrites: a store that is deposed while it writes keeps what it has
// acknowledged, and nothing of it comes later.
func epochUnderWrites(e *env) {
	var wg sync.WaitGroup
	var acknowledged atomic.Int64
	enough := make(chan struct{})
	old := e.store
	for n := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				err := old.Enqueue(e.ctx, e.batch, []queue.Entry{newEntry(fmt.Sprint("j", n, "-", i))})
				if err != nil {
					if !errors.Is(err, queue.ErrDeposed) {
						e.Errorf("got error %v, want %v", err, queue.ErrDeposed)
					}
					return
				}
				if acknowledged.Add(1) == 50 {
					close(enough)
				}
			}
		})
	}
	<-enough
	e.takeOver()
	_, total := e.list(queue.Filter{})
	wg.Wait()
	if _, after := e.list(queue.Filter{}); after != total || int64(after) != acknowledged.Load() {
		e.Errorf("%d were acknowledged, %d were there when the store was taken over and %d later", acknowledged.Load(), total, after)
	}
	e.check()
}
