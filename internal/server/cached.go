package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsched/agentsched/queue"
)

// How long an answer is kept, and how long it may take to compute.
const (
	freshTime   = 2 * time.Second
	computeTime = 20 * time.Second
)

// cached is an answer that is computed once for all clients: fifty browsers cost as much
// as one. What it returns is shared and must not be changed.
type cached[T any] struct {
	changes atomic.Int64 // how often it was forgotten

	mu    sync.Mutex
	made  time.Time
	after int64 // changes, when value began to be made
	value T
	// Why the database could not be asked, and when that was known.
	failed time.Time
	why    error
}

// forget makes the next answer be computed anew.
func (c *cached[T]) forget() { c.changes.Add(1) }

// get returns the answer, computed anew if it is not fresh. An error is not kept, but all that have waited for a
// database that cannot be asked get it, so that they do not wait one after the other. A
// client that leaves does not interrupt what others wait for.
func (c *cached[T]) get(ctx context.Context, compute func(context.Context) (T, error)) (T, error) {
	asked := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed.After(asked) {
		return c.value, c.why
	}
	changes := c.changes.Load()
	if !c.made.IsZero() && c.after == changes && time.Since(c.made) < freshTime {
		return c.value, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), computeTime)
	defer cancel()
	v, err := compute(ctx)
	if errors.Is(err, queue.ErrUnavailable) {
		c.failed, c.why = time.Now(), err
	}
	if err != nil {
		return v, err
	}
	c.value, c.made, c.after = v, time.Now(), changes
	return v, nil
}
