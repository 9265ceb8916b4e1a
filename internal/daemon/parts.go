package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// Part is one long-lived part of a program.
type Part struct {
	Name string
	// Run works until ctx ends; whatever it has started has ended when it returns.
	// It may be called again.
	Run func(ctx context.Context) error
}

// More than maxRestarts within restartsWithin end all parts.
const (
	maxRestarts    = 5
	restartsWithin = time.Minute
)

// errEnded is the end of a part that gave no reason for it.
var errEnded = errors.New("it ended")

// RunParts starts the parts in their order and keeps them running until ctx ends;
// then they are stopped one after the other, the last one first, and it returns the
// cause. Each may rely on those before it: when one ends before it was told to, it
// and those after it are stopped and started again, the strategy rest_for_one of
// Erlang/OTP's supervisor. One that keeps ending ends them all, which is the error.
// A panic is not caught: what it leaves cannot be trusted, and all that matters is
// durable.
func RunParts(ctx context.Context, parts []Part, log zerolog.Logger) error {
	r := partRunner{ends: make(chan partEnd)}
	defer func() { r.stop(0) }()
	var restarts []time.Time
	for from := 0; ; {
		for _, p := range parts[from:] {
			r.start(ctx, p)
		}
		var e partEnd
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e = <-r.ends:
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := time.Now()
		restarts = append(slices.DeleteFunc(restarts, func(t time.Time) bool { return now.Sub(t) > restartsWithin }), now)
		name := parts[e.part].Name
		r.stop(e.part)
		if len(restarts) > maxRestarts {
			return fmt.Errorf("%s ended again and again, at last with: %w", name, e.err)
		}
		delay := 100 * time.Millisecond << (len(restarts) - 1)
		log.Error().Err(e.err).Str("part", name).Dur("delay", delay).Msg("a part of the program ended: it and those after it are started again")
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(delay):
		}
		from = e.part
	}
}

// partEnd is how a part ended that nobody has stopped.
type partEnd struct {
	part int
	err  error
}

// partRunner holds the parts that run, in their order.
type partRunner struct {
	running []runningPart
	ends    chan partEnd
}

type runningPart struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (r *partRunner) start(ctx context.Context, p Part) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // each in its turn
	one := runningPart{cancel, make(chan struct{})}
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
		case r.ends <- partEnd{n, err}:
		case <-ctx.Done():
		}
	}()
}

// stop stops the parts from the n-th on, the last one first, each before the one
// that it relies on.
func (r *partRunner) stop(n int) {
	for i := len(r.running) - 1; i >= n; i-- {
		r.running[i].cancel()
		<-r.running[i].done
	}
	r.running = r.running[:n]
}
