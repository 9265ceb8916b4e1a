package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// tenants is how many share a queue.
const tenants = 100

// fillStep is how many entries one transaction of fill has.
const fillStep = 5000

// bed is one of our stores, and what it takes to add to it.
type bed struct {
	store queue.Store
	batch queue.Batch
	count atomic.Int64 // entries that were made
}

// openBed opens the store of a state directory and fills it up to n entries.
func openBed(ctx context.Context, dir string, n int) (*bed, error) {
	store, err := sqlite.Open(ctx, filepath.Join(dir, "queue.db"), sqlite.Options{Log: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	return newBed(ctx, store, n)
}

// newBed fills a store up to n entries, and closes it if that fails.
func newBed(ctx context.Context, store queue.Store, n int) (*bed, error) {
	b := &bed{store: store, batch: queue.Batch{ID: job.NewBatchID(), Source: "bench", CreatedAt: now()}}
	_, there, err := store.List(ctx, queue.Filter{Limit: 1})
	if err == nil {
		err = b.fill(ctx, n-there)
	}
	if err != nil {
		return nil, joinClose(err, store.Close)
	}
	return b, nil
}

func (b *bed) fill(ctx context.Context, n int) error {
	entries := make([]queue.Entry, 0, fillStep)
	for done := 0; done < n; done += fillStep {
		entries = entries[:0]
		for range min(fillStep, n-done) {
			entries = append(entries, b.entry())
		}
		if err := b.store.Enqueue(ctx, b.batch, entries); err != nil {
			return fmt.Errorf("fill the queue: %w", err)
		}
	}
	return nil
}

func (b *bed) entry() queue.Entry { return entryOf(spec(b.count.Add(1))) }

func entryOf(s job.Spec) queue.Entry {
	return queue.Entry{ID: job.NewID(), CreatedAt: now(), RunnableAt: now(), Spec: s}
}

// spec is a no-op job. River gets the same as its jobs' arguments.
func spec(n int64) job.Spec {
	return job.Spec{
		Name: job.Name(fmt.Sprintf("job-%d", n)), Tenant: job.Tenant(fmt.Sprintf("tenant-%d", n%tenants)),
		Type: job.Tool, Worker: "shell", Workspace: job.Workspace{Isolation: job.NoWorkspace}, Instructions: "true", Capabilities: []job.Capability{job.CanRunCommands},
	}
}

func now() time.Time { return time.Now().UTC() }
