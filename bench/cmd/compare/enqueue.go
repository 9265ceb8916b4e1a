package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsched/agentsched/queue"
)

const (
	callers = 64
	// Writes of a round: some tenths of a second each.
	oursWrites, riverWrites, singleWrites = 10_000, 2_000, 500
)

// enqueueCase is the durable write: one job a call, answered once it is on disk.
func enqueueCase(ctx context.Context, b *bench) (_ []row, err error) {
	dir, err := b.folder("enqueue")
	if err != nil {
		return nil, err
	}
	ours, err := openBed(ctx, dir, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, ours.store.Close) }()
	bytes, err := commitBytes(ctx, b)
	if err != nil {
		return nil, err
	}
	peer, err := openRiver(ctx, filepath.Join(dir, "river.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, peer.close) }()
	disk := &syncer{path: filepath.Join(dir, "disk"), bytes: bytes}

	s, err := turns(ctx, b.rounds,
		b.profiled("enqueue64", enqueueSide(ours.enqueue, callers, oursWrites)),
		enqueueSide(peer.insert, callers, riverWrites),
		inverse(b.profiled("enqueue1", enqueueSide(ours.enqueue, 1, singleWrites))),
		inverse(enqueueSide(peer.insert, 1, singleWrites)),
		func(ctx context.Context) (float64, error) { return disk.append(ctx, singleWrites) },
		func(ctx context.Context) (float64, error) { return disk.overwrite(ctx, singleWrites) },
	)
	if err != nil {
		return nil, err
	}
	return []row{
		rates("durable enqueue, 64 callers", s[0], "River", s[1], atLeast(15)),
		latencies("durable enqueue, 1 caller", s[2], fmt.Sprintf("fdatasync, %d B appended", bytes), s[4], atMost(1.3)),
		latencies("  the same", s[2], "fdatasync, overwritten in place", s[5], bound{}),
		latencies("  the same", s[2], "River", s[3], bound{}),
	}, nil
}

func (b *bed) enqueue(ctx context.Context) error {
	return b.store.Enqueue(ctx, b.batch, []queue.Entry{b.entry()})
}

// enqueueSide has callers make n writes together, as fast as they are answered.
func enqueueSide(write func(context.Context) error, callers, n int) side {
	return func(ctx context.Context) (float64, error) {
		var left atomic.Int64
		left.Store(int64(n))
		began := time.Now()
		err := together(callers, func() error {
			for left.Add(-1) >= 0 {
				if err := write(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		return rate(n, time.Since(began)), err
	}
}

// inverse turns a rate into the seconds of one.
func inverse(s side) side {
	return func(ctx context.Context) (float64, error) {
		value, err := s(ctx)
		return 1 / value, err
	}
}

// together runs n of do and returns the first error.
func together(n int, do func() error) error {
	var group sync.WaitGroup
	errs := make(chan error, n)
	for range n {
		group.Go(func() {
			if err := do(); err != nil {
				errs <- err
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// commitBytes is what one enqueue adds to the write-ahead log of a store that
// has some thousand entries.
func commitBytes(ctx context.Context, b *bench) (_ int, err error) {
	const writes = 50 // few enough that the log is not yet copied back
	dir, err := b.folder("commit")
	if err != nil {
		return 0, err
	}
	ours, err := openBed(ctx, dir, 2000)
	if err != nil {
		return 0, err
	}
	defer func() { err = joinClose(err, ours.store.Close) }()
	log := filepath.Join(dir, "queue.db-wal")
	before, err := os.Stat(log)
	if err != nil {
		return 0, err
	}
	for range writes {
		if err := ours.enqueue(ctx); err != nil {
			return 0, err
		}
	}
	after, err := os.Stat(log)
	if err != nil {
		return 0, err
	}
	bytes := int(after.Size()-before.Size()) / writes
	if bytes <= 0 {
		return 0, fmt.Errorf("the log %s did not grow", log)
	}
	return bytes, nil
}
