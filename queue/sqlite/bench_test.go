package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

var benchStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// BenchmarkEnqueue1 is the latency of one durable write.
func BenchmarkEnqueue1(b *testing.B) { benchEnqueue(b, 1) }

// BenchmarkEnqueue64 is the rate of durable writes by 64 callers at once.
func BenchmarkEnqueue64(b *testing.B) { benchEnqueue(b, 64) }

func benchEnqueue(b *testing.B, callers int) {
	s := openBench(b)
	batch := queue.Batch{ID: job.NewBatchID(), CreatedAt: benchStart}
	var next atomic.Int64
	done := make(chan error)
	used := cpuTime()
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		go func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					done <- nil
					return
				}
				if err := s.Enqueue(b.Context(), batch, []queue.Entry{benchEntry(n)}); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64(b.N)/float64(s.Commits()), "jobs/commit")
	b.ReportMetric(float64((cpuTime()-used).Microseconds())/float64(b.N), "cpu-us/job")
}

// BenchmarkClaimFinish is the way of one job through the store (claim, begin
// and run, finish: three commits) beside a growing number of others.
func BenchmarkClaimFinish(b *testing.B) {
	for _, backlog := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprint(backlog), func(b *testing.B) {
			s := openBench(b)
			fill(b, s, backlog+b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := claimAndFinish(b.Context(), s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkClaimBesideHeld is the same beside jobs that are held, with deadlines.
func BenchmarkClaimBesideHeld(b *testing.B) {
	for _, held := range []int{0, 100_000} {
		b.Run(fmt.Sprint(held), func(b *testing.B) {
			s := openBench(b)
			deadline := benchStart.Add(time.Hour)
			fill(b, s, held, func(e *queue.Entry) { e.Held, e.Deadline = job.HeldForNeeds, &deadline })
			fill(b, s, b.N)
			used := cpuTime()
			b.ResetTimer()
			for range b.N {
				if err := claimAndFinish(b.Context(), s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime()-used).Microseconds())/float64(b.N), "cpu-us/job")
		})
	}
}

func claimAndFinish(ctx context.Context, s *sqlite.Store) error {
	c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "bench", Max: 1, Now: benchStart, Lease: time.Minute})
	if err != nil {
		return err
	}
	e := c.Entries[0]
	n := e.Attempts + 1
	err = s.Apply(ctx,
		queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: n, State: job.Pending, Started: benchStart}},
		queue.Move{ID: e.ID, Fence: e.Fence, Attempt: n, To: job.Running})
	if err != nil {
		return err
	}
	return s.Apply(ctx, queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: n, Now: benchStart, Exit: job.ExitSucceeded,
		Outcome: job.Outcome{State: job.RunCompleted, StartedAt: benchStart, EndedAt: benchStart}})
}

// BenchmarkWork takes jobs through the store as a scheduler with many slots does:
// a claim for all that are free, then each job in calls of its own, beside a
// growing number of others.
func BenchmarkWork(b *testing.B) {
	for _, attempts := range []bool{false, true} {
		for _, backlog := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("attempts=%v/%d", attempts, backlog), func(b *testing.B) {
				s := openBench(b)
				fill(b, s, backlog+b.N)
				b.ReportAllocs()
				before := s.Commits()
				used := cpuTime()
				b.ResetTimer()
				work(b, s, b.N, 1000, attempts)
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
				b.ReportMetric(float64(b.N)/float64(s.Commits()-before), "jobs/commit")
				b.ReportMetric(float64((cpuTime()-used).Microseconds())/float64(b.N), "cpu-us/job")
			})
		}
	}
}

func work(b *testing.B, s *sqlite.Store, n, slots int, attempts bool) {
	ctx := b.Context()
	free, jobs, done := make(chan struct{}, slots), make(chan queue.Entry, slots), make(chan error, slots)
	for range slots {
		free <- struct{}{}
		go func() {
			for e := range jobs {
				if err := complete(ctx, s, e, attempts); err != nil {
					done <- err
					return
				}
				free <- struct{}{}
			}
			done <- nil
		}()
	}
	for n > 0 {
		<-free
		room := 1
		for len(free) > 0 && room < n {
			<-free
			room++
		}
		c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "bench", Max: room, Now: benchStart, Lease: time.Minute})
		if err != nil || len(c.Entries) != room {
			b.Fatalf("claimed %d of %d: %v", len(c.Entries), room, err)
		}
		for _, e := range c.Entries {
			jobs <- e
		}
		n -= room
	}
	close(jobs)
	for range slots {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

func complete(ctx context.Context, s *sqlite.Store, e queue.Entry, attempt bool) error {
	finish := queue.Finish{ID: e.ID, Fence: e.Fence, Now: benchStart, Exit: job.ExitSucceeded}
	if attempt {
		finish.Attempt = e.Attempts + 1
		finish.Outcome = job.Outcome{State: job.RunCompleted, StartedAt: benchStart, EndedAt: benchStart}
		err := s.Apply(ctx,
			queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: finish.Attempt, State: job.Pending, Started: benchStart}},
			queue.Move{ID: e.ID, Fence: e.Fence, Attempt: finish.Attempt, To: job.Running})
		if err != nil {
			return err
		}
	}
	return s.Apply(ctx, finish)
}

// cpuTime is what this process has used of the processors.
func cpuTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkCount counts what is ready, as a scheduler does each second.
func BenchmarkCount(b *testing.B) {
	for _, backlog := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprint(backlog), func(b *testing.B) {
			s := openBench(b)
			fill(b, s, backlog)
			b.ResetTimer()
			for range b.N {
				if _, err := s.Claim(b.Context(), queue.ClaimSpec{Holder: "bench", Now: benchStart, Count: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHeads works on the lanes of 10,000 tenants with 1,000,000 jobs, as a
// scheduler does: it reads what is new after one change, reads when nothing is, claims
// 16 jobs by their ids, and reads all lanes. Only these calls are timed.
func BenchmarkHeads(b *testing.B) {
	const lanes, jobs = 10_000, 1_000_000
	s := openBench(b)
	ctx, n := b.Context(), 0
	fill(b, s, jobs, func(e *queue.Entry) {
		e.Spec.Tenant = job.Tenant(fmt.Sprint("tenant-", n%lanes))
		n++
	})
	read := func(b *testing.B, since uint64, each int) queue.Heads {
		h, err := s.Heads(ctx, queue.HeadsSpec{Since: since, Each: each, Now: benchStart})
		if err != nil {
			b.Fatal(err)
		}
		return h
	}
	all := read(b, 0, 1)
	if len(all.Lanes) != lanes {
		b.Fatalf("%d lanes", len(all.Lanes))
	}
	timed := func(b *testing.B, prepare, do func()) {
		var took, used time.Duration
		for b.Loop() {
			prepare()
			began, before := time.Now(), cpuTime()
			do()
			took, used = took+time.Since(began), used+cpuTime()-before
		}
		b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/call")
		b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/call")
	}
	turn := 0
	ids := func(count int) (ids []job.ID) {
		for range count {
			ids = append(ids, all.Lanes[turn%lanes].Heads[0].ID)
			turn++
		}
		return ids
	}
	claim := func(b *testing.B, ids []job.ID) []queue.Entry {
		c, err := s.Claim(ctx, queue.ClaimSpec{Holder: "bench", IDs: ids, Now: benchStart, Lease: time.Minute})
		if err != nil || len(c.Entries) != len(ids) {
			b.Fatalf("claimed %d of %d: %v", len(c.Entries), len(ids), err)
		}
		return c.Entries
	}
	release := func(b *testing.B, list []queue.Entry) {
		var ops []queue.Op
		for _, e := range list {
			ops = append(ops, queue.Release{ID: e.ID, Fence: e.Fence, Now: benchStart, RunnableAt: benchStart})
		}
		if err := s.Apply(ctx, ops...); err != nil {
			b.Fatal(err)
		}
	}
	since := all.Version
	b.Run("changed", func(b *testing.B) {
		timed(b, func() { release(b, claim(b, ids(1))) }, func() {
			h := read(b, since, 4)
			if since = h.Version; len(h.Lanes) != 1 {
				b.Fatalf("told %d lanes", len(h.Lanes))
			}
		})
	})
	b.Run("unchanged", func(b *testing.B) { timed(b, func() {}, func() { since = read(b, since, 4).Version }) })
	b.Run("claim16", func(b *testing.B) {
		var list []queue.Entry
		timed(b, func() {
			if len(list) > 0 {
				release(b, list)
			}
		}, func() { list = claim(b, ids(16)) })
		release(b, list)
	})
	b.Run("all", func(b *testing.B) { timed(b, func() {}, func() { read(b, 0, 1) }) })
}

// fill stores n entries in transactions of 1,000.
func fill(b *testing.B, s *sqlite.Store, n int, options ...func(*queue.Entry)) {
	b.Helper()
	batch := queue.Batch{ID: job.NewBatchID(), CreatedAt: benchStart}
	for i := 0; i < n; i += 1000 {
		var entries []queue.Entry
		for k := i; k < min(i+1000, n); k++ {
			e := benchEntry(int64(k))
			for _, o := range options {
				o(&e)
			}
			entries = append(entries, e)
		}
		if err := s.Enqueue(b.Context(), batch, entries); err != nil {
			b.Fatal(err)
		}
	}
}

func benchEntry(n int64) queue.Entry {
	return queue.Entry{ID: job.NewID(), CreatedAt: benchStart, RunnableAt: benchStart, Spec: job.Spec{
		Name: job.Name(fmt.Sprintf("job-%d", n)), Tenant: job.Tenant(fmt.Sprintf("tenant-%d", n%100)), Type: job.WorkerTask, Worker: "codex",
		Workspace:    job.Workspace{Path: "/home/user/project", Isolation: job.Worktree},
		Instructions: "Fix the failing test in the parser and say what was wrong.", Capabilities: []job.Capability{job.CanRead, job.CanEdit},
	}}
}

func openBench(b *testing.B) *sqlite.Store {
	b.Helper()
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "queue.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}
