package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func benchStore(b *testing.B) *Lead {
	b.Helper()
	l, err := Open(context.Background(), config(b, newDatabase(b), "bench"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	return l
}

func benchEntry(n int) queue.Entry {
	now := time.Now()
	return queue.Entry{
		ID: job.NewID(), CreatedAt: now, RunnableAt: now,
		Spec: job.Spec{Name: job.Name(fmt.Sprint("j", n)), Tenant: job.DefaultTenant, Type: job.WorkerTask, Worker: "codex", Workspace: job.Workspace{Path: "/p", Isolation: job.Worktree}, Instructions: "do it"},
	}
}

func BenchmarkEnqueue64(b *testing.B) {
	l := benchStore(b)
	batch := queue.Batch{ID: job.NewBatchID(), Source: "x", CreatedAt: time.Now()}
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		wg.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				if err := l.Enqueue(b.Context(), batch, []queue.Entry{benchEntry(int(i))}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func BenchmarkClaimComplete(b *testing.B) {
	l := benchStore(b)
	batch := queue.Batch{ID: job.NewBatchID(), Source: "x", CreatedAt: time.Now()}
	for i := 0; i < b.N; i += 500 {
		var list []queue.Entry
		for k := i; k < min(b.N, i+500); k++ {
			list = append(list, benchEntry(k))
		}
		if err := l.Enqueue(b.Context(), batch, list); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	work := make(chan queue.Entry, 2000)
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			for c := range work {
				now := time.Now()
				if err := l.Apply(b.Context(), queue.Finish{ID: c.ID, Fence: c.Fence, Now: now, Exit: job.ExitSucceeded}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for got := 0; got < b.N; {
		c, err := l.Claim(b.Context(), queue.ClaimSpec{Holder: "h", Max: 1000, Now: time.Now(), Lease: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range c.Entries {
			work <- e
		}
		got += len(c.Entries)
	}
	close(work)
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
