package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

const (
	// Jobs of a round; ours are worked in two halves, so that a queue of 10⁴ stays
	// one of more than 5,000.
	oursWorked, riverWorked = 2 * oursHalf, 6000
	oursHalf, riverTried    = 5000, 2500
	tuneRounds              = 3
	// few is a number in flight that a single machine may really have.
	few        = 64
	maxClaimed = 2000 // by one call
	// flat is how much slower the slowest length of the queue may be.
	flat = 1.5
)

// inFlight lists how many jobs either side may hold at once; each is measured
// with the number with which it is fastest.
func inFlight() []int { return []int{few, 256, 1000, 2000} }

// claimCase is the durable way of a job through the queue: claimed, completed.
func claimCase(ctx context.Context, b *bench) (_ []row, err error) {
	million, err := b.millionDir(ctx)
	if err != nil {
		return nil, err
	}
	names, beds := []string{"10^4", "10^5", "10^6"}, make([]*bed, 3)
	for i, queued := range []int{10_000, 100_000, manyJobs} {
		dir := million
		if queued < manyJobs {
			if dir, err = b.folder("claim" + names[i]); err != nil {
				return nil, err
			}
		}
		ours, err := openBed(ctx, dir, queued)
		if err != nil {
			return nil, err
		}
		defer ours.store.Close()
		beds[i] = ours
	}
	peer, err := openRiver(ctx, filepath.Join(b.dir, "river.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, peer.close) }()
	atOnce := func(n int) side {
		return func(ctx context.Context) (float64, error) { return beds[0].round(ctx, n, false) }
	}
	slots, best, err := tune(ctx, atOnce, inFlight(), riverSettings(), func(s riverSetting) side { return peer.workSide(s, riverTried) })
	if err != nil {
		return nil, err
	}
	s, err := turns(ctx, b.rounds,
		b.workSide("claim10^4", beds[0], slots, false),
		b.workSide("claim10^5", beds[1], slots, false),
		b.workSide("claim10^6", beds[2], slots, false),
		peer.workSide(best, riverWorked),
		b.workSide("attempts", beds[0], slots, true),
		b.workSide("claimfew", beds[0], few, false),
		peer.workSide(riverSetting{few, time.Millisecond}, riverWorked/2),
	)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("River, %d at once", best.workers)
	var rows []row
	for i := range names {
		rows = append(rows, rates(fmt.Sprintf("claim + complete, %s queued, %d at once", names[i], slots), s[i], name, s[3], atLeast(6)))
	}
	medians := []float64{s[0].median(), s[1].median(), s[2].median()}
	return append(rows,
		ratioRow("  slowest of these against fastest", "-", "-", slices.Max(medians)/slices.Min(medians), atMost(flat)),
		rates("  10^4, with records of attempts", s[4], name, s[3], bound{}),
		rates(fmt.Sprintf("  10^4, %d at once on both sides", few), s[5], fmt.Sprintf("River, %d at once", few), s[6], bound{}),
	), nil
}

// tune finds with how many in flight each side is fastest, in turns too.
func tune(ctx context.Context, ours func(int) side, inFlight []int, settings []riverSetting, peer func(riverSetting) side) (slots int, best riverSetting, err error) {
	var sides []side
	for _, n := range inFlight {
		sides = append(sides, ours(n))
	}
	for _, setting := range settings {
		sides = append(sides, peer(setting))
	}
	s, err := turns(ctx, tuneRounds, sides...)
	if err != nil {
		return 0, riverSetting{}, err
	}
	n := len(inFlight)
	return inFlight[fastest(s[:n])], settings[fastest(s[n:])], nil
}

// fastest is the index of the sample with the highest median.
func fastest(list []sample) (best int) {
	for i, s := range list {
		if s.median() > list[best].median() {
			best = i
		}
	}
	return best
}

func (b *bench) workSide(name string, ours *bed, slots int, attempts bool) side {
	return b.profiled(name, func(ctx context.Context) (float64, error) { return ours.round(ctx, slots, attempts) })
}

// round works a round's jobs and puts as many new ones in their place, which is
// not measured.
func (b *bed) round(ctx context.Context, slots int, attempts bool) (float64, error) {
	var took time.Duration
	for range oursWorked / oursHalf {
		began := time.Now()
		if _, err := b.work(ctx, oursHalf, slots, attempts); err != nil {
			return 0, err
		}
		took += time.Since(began)
		if err := b.fill(ctx, oursHalf); err != nil {
			return 0, err
		}
	}
	return rate(oursWorked, took), nil
}

// work takes n jobs through the queue as a scheduler with so many slots does: a
// claim for all that are free, then each job on its own, in its own calls. first is
// when the first of them began.
//
//	free ──► Claim(all that are free) ──► jobs ──► Begin, Move · Finish ──► free
func (b *bed) work(ctx context.Context, n, slots int, attempts bool) (first time.Time, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	free, jobs := make(chan struct{}, slots), make(chan queue.Entry, slots)
	for range slots {
		free <- struct{}{}
	}
	done := make(chan error, 1)
	go func() {
		done <- together(slots, func() error {
			for e := range jobs {
				if err := b.pass(ctx, e, attempts); err != nil {
					cancel(err)
					return err
				}
				free <- struct{}{}
			}
			return nil
		})
	}()
	defer func() { close(jobs); err = errors.Join(err, <-done) }()
	for n > 0 {
		select {
		case <-free:
		case <-ctx.Done():
			return first, context.Cause(ctx)
		}
		room := 1 + take(free, min(n, maxClaimed)-1)
		claims, err := b.store.Claim(ctx, queue.ClaimSpec{Holder: "bench", Max: room, Now: now(), Lease: time.Minute})
		if err != nil {
			return first, err
		}
		if len(claims.Entries) < room {
			return first, fmt.Errorf("claimed %d jobs of %d", len(claims.Entries), room)
		}
		if first.IsZero() {
			first = time.Now()
		}
		for _, e := range claims.Entries {
			jobs <- e
		}
		n -= room
	}
	return first, nil
}

// take receives what is there, at most n, and returns how many.
func take(free <-chan struct{}, n int) int {
	for got := range n {
		select {
		case <-free:
		default:
			return got
		}
	}
	return n
}

// pass completes one claimed job, with the record of an attempt or without.
func (b *bed) pass(ctx context.Context, e queue.Entry, attempt bool) error {
	finish := queue.Finish{ID: e.ID, Fence: e.Fence, Now: now(), Exit: job.ExitSucceeded}
	if attempt {
		finish.Attempt = e.Attempts + 1
		finish.Outcome = job.Outcome{State: job.RunCompleted, StartedAt: now(), EndedAt: now()}
		err := b.store.Apply(ctx,
			queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Job: e.ID, Number: finish.Attempt, Fence: e.Fence, State: job.Pending, Started: now()}},
			queue.Move{ID: e.ID, Fence: e.Fence, Attempt: finish.Attempt, To: job.Running})
		if err != nil {
			return err
		}
	}
	return b.store.Apply(ctx, finish)
}
