package sched

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Keep looks at most once in keepAtMost, and once in keepAtLeast even if nothing
// is known to end: others may write to the store.
const (
	keepAtMost  = time.Second
	keepAtLeast = time.Minute
)

// leases are the ends of the claims that workers hold, while Keep runs. They have
// the monotonic clock, so that a wall clock that is set ends none of them.
type leases struct {
	// renewing is held, shared, by Extend from before it writes: what is being
	// extended is not taken back.
	renewing sync.RWMutex
	sooner   chan struct{} // capacity 1: next has become earlier

	mu   sync.Mutex // guards what follows
	ends map[job.Fence]lease
	next time.Time // when Keep looks again; zero: Keep does not run
}

// lease is a claim that a worker holds.
type lease struct {
	id    job.ID
	until time.Time
}

// hold notes claims.
func (l *leases) hold(entries []queue.Entry, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next.IsZero() {
		return
	}
	for i := range entries {
		l.ends[entries[i].Fence] = lease{entries[i].ID, until}
	}
	l.lookAt(until)
}

// extend moves the ends of claims.
func (l *leases) extend(fences []job.Fence, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range fences {
		if old, known := l.ends[f]; known {
			l.ends[f] = lease{old.id, until}
		}
	}
	l.lookAt(until)
}

// drop forgets claims that are no longer held.
func (l *leases) drop(fences ...job.Fence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range fences {
		delete(l.ends, f)
	}
}

// expires notes that an entry has a deadline.
func (l *leases) expires(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookAt(at)
}

// lookAt makes Keep look at that time, unless it looks before. l.mu is held.
func (l *leases) lookAt(at time.Time) {
	if l.next.IsZero() || !at.Before(l.next) {
		return
	}
	l.next = at
	select {
	case l.sooner <- struct{}{}:
	default:
	}
}

// ended returns the claims whose leases have ended, in the order of their fences,
// and has Keep look again when the next one ends.
func (l *leases) ended(now time.Time) (fences []job.Fence, ids []job.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f, h := range l.ends {
		if h.until.After(now) {
			l.lookAt(h.until)
		} else {
			fences = append(fences, f)
		}
	}
	slices.Sort(fences)
	for _, f := range fences {
		ids = append(ids, l.ends[f].id)
	}
	return fences, ids
}

// Keep enforces leases and deadlines until ctx ends, and returns ctx's cause: an
// entry whose lease has ended is queued again, one whose deadline has passed
// expires, each at most a second late. A claim that is older than Keep holds for
// at least another DefaultLease, since its worker could not extend it while nobody
// answered. At most one Keep runs for a store.
func (k *Kernel) Keep(ctx context.Context) error {
	l := &k.leases
	l.mu.Lock()
	l.ends, l.next = map[job.Fence]lease{}, k.now()
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ends, l.next = nil, time.Time{}
	}()
	recalled := false
	for {
		looked := k.now()
		l.mu.Lock()
		l.next = looked.Add(keepAtLeast)
		l.mu.Unlock()
		errs := []error{k.takeBack(ctx), k.expire(ctx)}
		if !recalled {
			err := k.recall(ctx)
			recalled = err == nil
			errs = append(errs, err)
		}
		for _, err := range errs {
			if err != nil && ctx.Err() == nil {
				k.log.Error().Err(err).Msg("enforce leases and deadlines of kernel.sched")
				l.expires(looked.Add(keepAtMost))
			}
		}
		if err := l.sleep(ctx, k.now, looked.Add(keepAtMost)); err != nil {
			return err
		}
	}
}

// sleep returns nil when it is time to look again, at the earliest at soonest.
func (l *leases) sleep(ctx context.Context, now func() time.Time, soonest time.Time) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.mu.Lock()
		next := l.next
		l.mu.Unlock()
		if next.Before(soonest) {
			next = soonest
		}
		timer.Reset(next.Sub(now()))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return nil
		case <-l.sooner:
		}
	}
}

// recall notes the claims that are older than Keep.
func (k *Kernel) recall(ctx context.Context) error {
	list, _, err := k.store.List(ctx, queue.Filter{States: []job.EntryState{job.Dispatched}, External: true, Limit: 1 << 30})
	if err != nil {
		return err
	}
	now, l := k.now(), &k.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		e, left := &list[i], DefaultLease
		if e.LeaseUntil != nil {
			left = min(max(e.LeaseUntil.Sub(now), DefaultLease), MaxLease)
		}
		if _, known := l.ends[e.Fence]; !known {
			l.ends[e.Fence] = lease{e.ID, now.Add(left)}
			l.lookAt(now.Add(left))
		}
	}
	return nil
}

// takeBack queues the entries again whose leases have ended.
func (k *Kernel) takeBack(ctx context.Context) error {
	l := &k.leases
	l.renewing.Lock()
	fences, ids := l.ended(k.now())
	var err error
	if len(fences) > 0 {
		if err = k.store.Apply(ctx, queue.Reclaim{Now: k.moment(), Fences: fences, Message: "the lease of its worker has ended"}); err == nil {
			l.drop(fences...)
		}
	}
	l.renewing.Unlock()
	if err != nil || len(ids) == 0 {
		return err
	}
	k.log.Info().Int("entries", len(ids)).Msg("leases of kernel.sched have ended; the entries are queued again")
	k.tell(ctx, ids)
	return nil
}

// expire moves overdue entries to expired.
func (k *Kernel) expire(ctx context.Context) error {
	now := k.moment()
	claims, err := k.store.Claim(ctx, queue.ClaimSpec{Holder: Source, External: true, Now: now})
	k.tell(ctx, claims.Expired)
	if !claims.NextAt.IsZero() {
		k.leases.expires(k.now().Add(claims.NextAt.Sub(now)))
	}
	return err
}
