package parts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/rs/zerolog"
)

// Part is one long-lived part of a program.
type Part struct {
	Name string
	// Run works until ctx ends; whatever it has started has ended when it returns.
	// It may be called again.
	Run func(ctx context.Context) error
}

// Group runs parts.
type Group struct {
	Parts []Part // each may rely on those before it
	// MaxRestarts is how many restarts within Within are allowed: one more ends the
	// group. Defaults: 5 within a minute.
	MaxRestarts int
	Within      time.Duration
	Log         zerolog.Logger
}

// Defaults of a Group.
const (
	defaultMaxRestarts = 5
	defaultWithin      = time.Minute
)

// errEnded is the end of a part that gave no reason for it.
var errEnded = errors.New("it ended")

// EndedError says that a part kept ending.
type EndedError struct {
	Part string
	Err  error // its last end
}

// Error names the part and how it ended last.
func (e *EndedError) Error() string {
	return fmt.Sprintf("%s ended again and again, at last with: %v", e.Part, e.Err)
}

// Unwrap returns how the part ended last.
func (e *EndedError) Unwrap() error { return e.Err }

// Run starts the parts in their order and keeps them running until ctx ends; then
// they are stopped one after the other, the last one first, and it returns the
// cause. It returns an *EndedError, all of them stopped, when one has ended more
// often than is allowed.
func (g *Group) Run(ctx context.Context) error {
	most, within := g.MaxRestarts, g.Within
	if most <= 0 {
		most = defaultMaxRestarts
	}
	if within <= 0 {
		within = defaultWithin
	}
	r := runner{ends: make(chan end)}
	defer func() { r.stop(0) }()
	var restarts []time.Time
	for from := 0; ; {
		for _, p := range g.Parts[from:] {
			r.start(ctx, p)
		}
		var e end
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e = <-r.ends:
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := time.Now()
		restarts = append(slices.DeleteFunc(restarts, func(t time.Time) bool { return now.Sub(t) > within }), now)
		name := g.Parts[e.part].Name
		r.stop(e.part)
		if len(restarts) > most {
			return &EndedError{name, e.err}
		}
		delay := pause(len(restarts))
		g.Log.Error().Err(e.err).Str("part", name).Dur("delay", delay).Msg("a part of the program ended: it and those after it are started again")
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(delay):
		}
		from = e.part
	}
}

// pause is how long to wait before the n-th restart in a row.
func pause(n int) time.Duration {
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second),
		backoff.WithMultiplier(2), backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
	d := b.NextBackOff()
	for range n - 1 {
		d = b.NextBackOff()
	}
	return d
}

// end is how a part ended that nobody has stopped.
type end struct {
	part int
	err  error
}

// runner holds the parts that run, in their order.
type runner struct {
	running []running
	ends    chan end
}

type running struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (r *runner) start(ctx context.Context, p Part) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // each in its turn
	one := running{cancel, make(chan struct{})}
	n := len(r.running)
	r.running = append(r.running, one)
	go func() {
		defer close(one.done)
		err := p.Run(ctx)
		if ctx.Err() != nil {
			return // it was told to
		}
		if err == nil {
			err = errEnded
		}
		select {
		case r.ends <- end{n, err}:
		case <-ctx.Done():
		}
	}()
}

// stop stops the parts from the n-th on, the last one first, each before the one
// that it relies on.
func (r *runner) stop(n int) {
	for i := len(r.running) - 1; i >= n; i-- {
		r.running[i].cancel()
		<-r.running[i].done
	}
	r.running = r.running[:n]
}
