package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// A sweep is at least sweepPause after the one before, and at most sweepIdle, even
// if nothing is known to end.
const (
	sweepPause = time.Second
	sweepIdle  = time.Minute
)

// leases are the ends of claims, known while Sweep runs. They have the monotonic
// clock, so that a wall clock that is set ends none of them.
type leases struct {
	// renewing is held, shared, by Extend from before it writes: what is being
	// extended is not taken back.
	renewing sync.RWMutex
	sooner   chan struct{} // capacity 1: next has become earlier
	// grace is how long claims hold at least that are older than Sweep; 0: queue.SweepGrace.
	grace time.Duration

	mu   sync.Mutex // guards what follows
	ends map[job.Fence]lease
	next time.Time // of the next sweep; zero while Sweep does not run
}

type lease struct {
	id    job.ID
	until time.Time
}

// hold notes claims.
func (l *leases) hold(entries []queue.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next.IsZero() {
		return
	}
	now := time.Now()
	for i := range entries {
		e := &entries[i]
		until := now.Add(e.LeaseUntil.Sub(now))
		l.ends[e.Fence] = lease{e.ID, until}
		l.lookAt(now, until)
	}
}

// extend moves the ends of claims to until, and forgets those that are lost.
func (l *leases) extend(fences, lost []job.Fence, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	until = now.Add(until.Sub(now))
	for _, f := range fences {
		if old, known := l.ends[f]; known {
			l.ends[f] = lease{old.id, until}
			l.lookAt(now, until)
		}
	}
	for _, f := range lost {
		delete(l.ends, f)
	}
}

// applied forgets claims that ops have ended.
func (l *leases) applied(ops []queue.Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range ops {
		switch op := op.(type) {
		case queue.Finish:
			delete(l.ends, op.Fence)
		case queue.Release:
			delete(l.ends, op.Fence)
		case queue.Await:
			delete(l.ends, op.Fence)
		case queue.Reclaim:
			for _, f := range op.Fences {
				delete(l.ends, f)
			}
		}
	}
}

// expires notes the deadlines of entries that nobody but Sweep lets expire.
func (l *leases) expires(entries []queue.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for i := range entries {
		if e := &entries[i]; e.Deadline != nil && e.Spec.Type == job.External {
			l.lookAt(now, now.Add(e.Deadline.Sub(now)))
		}
	}
}

// lookAt has the next sweep at that time, unless it is before. l.mu is held.
func (l *leases) lookAt(now, at time.Time) {
	if at.Before(now) {
		at = now
	}
	if l.next.IsZero() || !at.Before(l.next) {
		return
	}
	l.next = at
	select {
	case l.sooner <- struct{}{}:
	default:
	}
}

// begin starts a sweep, late after the time for which it was planned: for so long
// nobody could extend anything.
func (l *leases) begin(now time.Time, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = now.Add(sweepIdle)
	if late > sweepPause {
		for f, held := range l.ends {
			l.ends[f] = lease{held.id, held.until.Add(late)}
		}
	}
}

// ended returns the claims whose leases have ended, in the order of their fences,
// and has the next sweep when the next one ends.
func (l *leases) ended(now time.Time) (fences []job.Fence, ids []job.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f, held := range l.ends {
		if held.until.After(now) {
			l.lookAt(now, held.until)
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

// sleep waits until the next sweep, at the earliest soonest, and returns when that
// should have been.
func (l *leases) sleep(ctx context.Context, soonest time.Time) (planned time.Time, err error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.mu.Lock()
		next := l.next
		l.mu.Unlock()
		if next.Before(soonest) {
			next = soonest
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return next, context.Cause(ctx)
		case <-timer.C:
			return next, nil
		case <-l.sooner:
		}
	}
}

// SetGrace sets how long a claim holds at least that is older than Sweep, in the place
// of queue.SweepGrace, which is meant for holders on this host. Sweep must not run yet.
func (s *Store) SetGrace(d time.Duration) { s.writer.leases.grace = d }

// Sweep implements queue.Store.
func (s *Store) Sweep(ctx context.Context, changed func([]job.ID)) error {
	if s.writer == nil {
		return errReadOnly
	}
	w := sweeper{s, &s.writer.leases, changed}
	return w.run(ctx)
}

type sweeper struct {
	store   *Store
	leases  *leases
	changed func([]job.ID)
}

func (w *sweeper) run(ctx context.Context) error {
	l := w.leases
	planned := time.Now()
	l.mu.Lock()
	l.ends, l.next = map[job.Fence]lease{}, planned
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ends, l.next = nil, time.Time{}
	}()
	recalled := false
	for {
		now := time.Now()
		l.begin(now, now.Sub(planned))
		errs := []error{w.takeBack(ctx, now), w.expire(ctx)}
		if !recalled {
			err := w.recall(ctx)
			recalled = err == nil
			errs = append(errs, err)
		}
		for _, err := range errs {
			if err != nil && ctx.Err() == nil {
				w.store.writer.log.Error().Err(err).Msg("enforce leases")
				l.mu.Lock()
				l.lookAt(now, now.Add(sweepPause))
				l.mu.Unlock()
			}
		}
		var err error
		if planned, err = l.sleep(ctx, now.Add(sweepPause)); err != nil {
			return err
		}
	}
}

// recall notes the claims that are older than Sweep.
func (w *sweeper) recall(ctx context.Context) error {
	list, _, err := w.store.List(ctx, queue.Filter{States: []job.EntryState{job.Dispatched}, Limit: 1 << 30})
	if err != nil {
		return err
	}
	now, l := time.Now(), w.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		e, left := &list[i], cmp.Or(l.grace, queue.SweepGrace)
		if e.LeaseUntil != nil {
			left = max(left, e.LeaseUntil.Sub(now))
		}
		until := now.Add(left)
		if _, known := l.ends[e.Fence]; !known {
			l.ends[e.Fence] = lease{e.ID, until}
			l.lookAt(now, until)
		}
	}
	return nil
}

// takeBack queues the entries again whose leases have ended.
func (w *sweeper) takeBack(ctx context.Context, now time.Time) error {
	w.leases.renewing.Lock()
	fences, ids := w.leases.ended(now)
	var err error
	if len(fences) > 0 {
		err = w.store.Apply(ctx, queue.Reclaim{Now: now.UTC().Round(0), Fences: fences, Message: "its lease has ended"})
	}
	w.leases.renewing.Unlock()
	if err != nil || len(ids) == 0 {
		return err
	}
	w.store.writer.log.Info().Int("entries", len(ids)).Msg("leases have ended; the entries are queued again")
	w.changed(ids)
	return nil
}

// expire lets what is overdue expire.
func (w *sweeper) expire(ctx context.Context) error {
	now := time.Now()
	claims, err := w.store.Claim(ctx, queue.ClaimSpec{External: true, Now: now.UTC().Round(0)})
	if len(claims.Expired) > 0 {
		w.changed(claims.Expired)
	}
	if !claims.NextAt.IsZero() {
		w.leases.mu.Lock()
		w.leases.lookAt(now, now.Add(claims.NextAt.Sub(now)))
		w.leases.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("let overdue entries expire: %w", err)
	}
	return nil
}
