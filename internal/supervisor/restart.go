package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Reconfigure sends every live core the settings as they are now. A core that
// is about to start asks for them itself.
func (s *Supervisor) Reconfigure(ctx context.Context) error {
	cores := s.live()
	errs := make([]error, len(cores))
	var told sync.WaitGroup
	for i, c := range cores {
		if !c.greeted.Load() {
			continue
		}
		told.Go(func() {
			if err := c.configure(ctx); err != nil {
				errs[i] = fmt.Errorf("configure agentcore %d: %w", c.index, err)
			}
		})
	}
	told.Wait()
	return errors.Join(errs...)
}

// Restart replaces a core, or with index 0 all of them, one after the other,
// and returns when the last successor is up. With drain a core first ends its
// runs; else they are stopped. An isolated core is tried again. It stops at the
// first core that does not come up again, and when ctx ends; a replacement that
// has begun goes on by itself.
func (s *Supervisor) Restart(ctx context.Context, index int, drain bool) error {
	if index < 0 || index > len(s.seats) {
		return fmt.Errorf("restart agentcore %d: there are %d", index, len(s.seats))
	}
	select {
	case <-s.running:
	default:
		return fmt.Errorf("restart agentcore: %w", ErrNotRunning)
	}
	select {
	case s.restarting <- struct{}{}:
		defer func() { <-s.restarting }()
	case <-ctx.Done():
		return fmt.Errorf("wait for another restart: %w", context.Cause(ctx))
	}
	for _, st := range s.seats {
		if index != 0 && st.index != index {
			continue
		}
		if err := st.replace(ctx, replacement{why: "a restart was asked for", drain: drain}); err != nil {
			return fmt.Errorf("restart agentcore %d: %w", st.index, err)
		}
	}
	return nil
}

// replace asks for another core in the seat and waits until it is up.
func (st *seat) replace(ctx context.Context, r replacement) error {
	s := st.s
	s.mu.Lock()
	want := st.spawned + 1
	st.wanted = &r
	s.mu.Unlock()
	st.kick()
	for {
		s.mu.Lock()
		there, state, cause, changed := st.spawned >= want, st.state, st.cause, s.changed
		s.mu.Unlock()
		switch {
		case there && (state == Up || state == Draining):
			return nil
		case there && (state == Down || state == Isolated):
			return fmt.Errorf("it did not come up again: %s", cause)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ended:
			return ErrNotRunning
		}
	}
}

// Resume ends the isolation of a core, or with index 0 of all, and reports
// whether there was one.
func (s *Supervisor) Resume(index int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	any := false
	for _, st := range s.seats {
		if (index == 0 || index == st.index) && st.state == Isolated {
			any, st.vouched = true, true
			st.kick()
		}
	}
	return any
}
