package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Config is what a Run is made of.
type Config struct {
	Store   Store
	Space   string                     // where its steps are kept, see Space
	Attempt int                        // noted with what it stores; 0: none
	Now     func() time.Time           // nil: time.Now
	Observe func(what What, id string) // if not nil, told of each step; it must not block
}

// What is what happened with a step.
type What string

// What an observer is told.
const (
	Completed What = "step_completed" // computed, its result is on disk
	Replayed  What = "step_replayed"  // answered from the store
	Failed    What = "step_failed"    // not computed, not stored, or of other inputs
)

// Run is one run of a program of steps. It may be used by many goroutines at once.
type Run struct {
	cfg Config

	mu    sync.Mutex
	calls map[string]*call // that are under way, by step
}

// call is a step on its way. The fields below done are set before it is closed.
type call struct {
	inputs string
	done   chan struct{}

	result json.RawMessage
	err    error
	cut    bool // its caller's context ended: who waits may try himself
}

// New returns a run over what is stored.
func New(cfg Config) *Run {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Observe == nil {
		cfg.Observe = func(What, string) {}
	}
	return &Run{cfg: cfg, calls: map[string]*call{}}
}

// errPanicked is what those get who waited for a computation that panicked.
var errPanicked = errors.New("its computation panicked")

// do returns the step's result, from the store or computed and stored. Of
// concurrent callers one computes, the others wait for it.
func (r *Run) do(ctx context.Context, id, inputs string, compute func(context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c, mine := r.join(id, inputs)
		if mine {
			r.lead(ctx, c, id, compute)
			return c.result, c.err
		}
		if c.inputs != inputs {
			r.cfg.Observe(Failed, id)
			return nil, &CollisionError{ID: id, Stored: c.inputs, Asked: inputs}
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !c.cut {
			return c.result, c.err
		}
	}
}

// join returns the call of the step that is under way, or a new one of the caller's.
func (r *Run) join(id, inputs string) (c *call, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[id]; c != nil {
		return c, false
	}
	c = &call{inputs: inputs, done: make(chan struct{}), err: errPanicked}
	r.calls[id] = c
	return c, true
}

// lead brings a call to its end, also if the computation panics.
func (r *Run) lead(ctx context.Context, c *call, id string, compute func(context.Context) (json.RawMessage, error)) {
	what := Failed
	defer func() {
		c.cut = c.err != nil && ctx.Err() != nil
		r.mu.Lock()
		delete(r.calls, id)
		r.mu.Unlock()
		close(c.done)
		r.cfg.Observe(what, id)
	}()
	kept, found, err := lookup(ctx, r.cfg.Store, r.cfg.Space, id, c.inputs)
	switch {
	case err != nil:
		c.err = err
	case found:
		c.result, c.err, what = kept.Result, nil, Replayed
	default:
		c.result, what, c.err = r.compute(ctx, c, id, compute)
	}
}

// storeTime is how long the store may take for a result.
const storeTime = 30 * time.Second

func (r *Run) compute(ctx context.Context, c *call, id string, compute func(context.Context) (json.RawMessage, error)) (json.RawMessage, What, error) {
	result, err := compute(ctx)
	if err != nil {
		return nil, Failed, err
	}
	// It is done and paid for: a context that ended meanwhile does not lose it.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), storeTime, fmt.Errorf("the store took longer than %s", storeTime))
	defer cancel()
	kept, fresh, err := Keep(ctx, r.cfg.Store, r.cfg.Space, Stored{ID: id, Inputs: c.inputs, Result: result, Attempt: r.cfg.Attempt, At: r.cfg.Now().UTC()})
	switch {
	case err != nil:
		return nil, Failed, err
	case fresh:
		return kept.Result, Completed, nil
	}
	return kept.Result, Replayed, nil
}
