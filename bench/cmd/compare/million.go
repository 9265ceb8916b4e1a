package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// manyTenants share the big queue of a database.
const manyTenants = 10_000

// shareCase starts schedulers on 10⁶ queued jobs of 10⁴ tenants in a database, and on none: one
// whose host has no copy of the queue yet, the same again, and one that stands by.
func shareCase(ctx context.Context, b *bench) (_ []row, err error) {
	what := "on PostgreSQL: memory of the leader, 10^6 queued of 10^4 tenants"
	server, why := pgtest.New(pgtest.In(b.dir), pgtest.Conf("shared_buffers = 256MB", "max_wal_size = 8GB"))
	if why != nil {
		return []row{leftOut(what, "-", why)}, nil
	}
	defer func() { err = joinClose(err, server.Close) }()
	var full, empty *shared
	for _, x := range []struct {
		into **shared
		name string
		jobs int
	}{{&empty, "share-none", 0}, {&full, "share-many", manyJobs}} {
		f, err := newFleet(ctx, b, server, x.name, "AGENTSCHED_CONCURRENCY__MAX=1", "AGENTSCHED_QUEUE__MAX_QUEUED=2000000")
		if err != nil {
			return nil, err
		}
		s := &shared{f: f, pipe: f.path("started")}
		defer func() { err = joinClose(err, f.close) }()
		if err := s.fill(ctx, x.jobs); err != nil {
			return nil, err
		}
		*x.into = s
	}
	rounds := min(b.rounds, 3)
	for i := range rounds {
		for _, s := range []*shared{empty, full} {
			if err := s.round(ctx, i == rounds-1); err != nil {
				return nil, err
			}
		}
	}
	resident := full.resident.median() - empty.resident.median()
	most, within := bound{most: 64, unit: " MB"}, bound{most: 2, unit: " s"}
	return []row{
		{what, showSize(full.resident), "none queued " + showSize(empty.resident), fmt.Sprintf("%+.0f MB", resident/mebi), most.String(), most.reached(resident / mebi)},
		{"  memory of the standby", showSize(full.beside), "none queued " + showSize(empty.beside), fmt.Sprintf("%+.0f MB", (full.beside.median()-empty.beside.median())/mebi), "-", "-"},
		{"  start to first job running, its copy on this host", showTime(full.again), "none queued " + showTime(empty.again), fmt.Sprintf("%.2f s", full.again.median()), within.String(), within.reached(full.again.median())},
		latencies("  the same without a copy yet", full.first, "none queued", empty.first, bound{}),
		latencies("  start of a standby without a copy, until it stands by", full.copied, "none queued", empty.copied, bound{}),
		latencies("  leader killed, until it answers a write", full.taken, "none queued", empty.taken, bound{}),
	}, nil
}

// shared is what the starts of schedulers on one queue take: seconds, and bytes.
type shared struct {
	f     *fleet
	pipe  string // where the first job says that it runs
	hosts int

	first, again, copied, taken, resident, beside sample
}

// fill queues the job that says that it runs and then keeps the only slot, and n others.
func (s *shared) fill(ctx context.Context, n int) (err error) {
	if err := syscall.Mkfifo(s.pipe, 0o600); err != nil {
		return os.NewSyscallError("mkfifo", err)
	}
	store, err := openShared(ctx, s.f.store, s.f.path("filler"))
	if err != nil {
		return err
	}
	defer func() { err = joinClose(err, store.Close) }()
	batch := queue.Batch{ID: job.NewBatchID(), Source: "bench", CreatedAt: now()}
	first := entryOf(spec(0))
	first.Spec.Name, first.Spec.Priority = "first", 100
	first.Spec.Instructions = fmt.Sprintf("echo running > '%s'; exec sleep 600", s.pipe)
	entries := []queue.Entry{first}
	for i := 1; ; i++ {
		if len(entries) >= fillStep || i > n {
			if err := store.Enqueue(ctx, batch, entries); err != nil {
				return fmt.Errorf("fill the queue: %w", err)
			}
			entries = nil
		}
		if i > n {
			return nil
		}
		x := spec(int64(i))
		x.Tenant = job.Tenant(fmt.Sprintf("tenant-%d", i%manyTenants))
		entries = append(entries, entryOf(x))
	}
}

// round starts a scheduler on a host that is new, again on the same one, and another one beside
// it. The last time the first is killed, which its job outlives in the queue: no other round
// could begin with that.
func (s *shared) round(ctx context.Context, last bool) (err error) {
	s.hosts++
	a, err := s.f.add(fmt.Sprint("a", s.hosts))
	if err != nil {
		return err
	}
	b, err := s.f.add(fmt.Sprint("b", s.hosts))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.end(), a.end()) }()
	for _, into := range []*sample{&s.first, &s.again} {
		took, err := s.running(ctx, a)
		if err != nil {
			return a.said.told(err)
		}
		*into = append(*into, took)
		if into == &s.again {
			break
		}
		if err := a.end(); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := b.follow(ctx, a); err != nil {
		return err
	}
	s.copied = append(s.copied, time.Since(began).Seconds())
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for m, into := range map[*member]*sample{a: &s.resident, b: &s.beside} {
		resident, _, err := memoryOf(m.cmd.Process.Pid)
		if err != nil {
			return err
		}
		*into = append(*into, resident)
	}
	if !last {
		return nil
	}
	began = time.Now()
	if err := a.kill(); err != nil {
		return err
	}
	took, err := b.written(ctx, began)
	s.taken = append(s.taken, took)
	return err
}

// running starts a scheduler and returns the seconds until the first job runs.
func (s *shared) running(ctx context.Context, m *member) (float64, error) {
	pipe, err := os.OpenFile(s.pipe, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer pipe.Close()
	began := time.Now()
	if err := m.start(ctx); err != nil {
		return 0, err
	}
	if err := pipe.SetReadDeadline(began.Add(manyWait)); err != nil {
		return 0, err
	}
	if _, err := pipe.Read(make([]byte, 16)); err != nil {
		return 0, fmt.Errorf("%s: wait for the first job: %w", filepath.Base(m.state), err)
	}
	return time.Since(began).Seconds(), nil
}
