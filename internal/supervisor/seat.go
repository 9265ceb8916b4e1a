package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
)

// seat is the place of one core: there is one at a time in it, and another
// after its end. All but what mu guards belongs to the goroutine of run.
type seat struct {
	s      *Supervisor
	index  int
	log    zerolog.Logger
	loop   crashLoop
	delays *backoff.ExponentialBackOff

	poke chan struct{} // capacity 1: wanted or vouched has changed

	// Guarded by Supervisor.mu.
	core     *Core // whose process may be alive, or nil
	state    State
	since    time.Time
	until    time.Time // end of the isolation
	cause    string
	spawned  int          // starts so far
	failures int          // starts in a row that did not get up
	wanted   *replacement // what somebody asked for since the last start
	vouched  bool         // somebody wants the isolation to end
}

// replacement is what makes a core that works end.
type replacement struct {
	why   string
	drain bool
}

func newSeat(s *Supervisor, index int) *seat {
	d := s.cfg.Delays
	return &seat{
		s: s, index: index, log: s.cfg.Log.With().Int("core", index).Logger(), loop: crashLoop{Intensity: s.cfg.Intensity},
		delays: backoff.NewExponentialBackOff(backoff.WithInitialInterval(d.First), backoff.WithMaxInterval(d.Max), backoff.WithMaxElapsedTime(0)),
		poke:   make(chan struct{}, 1), state: Down, since: time.Now(),
	}
}

// ending is how the life of a core ended.
type ending struct {
	up      bool // it took work
	asked   bool // the supervisor asked for its end
	ailing  bool // it was replaced because of its health
	started bool // there was a process
	lived   time.Duration
	err     error
}

// run fills the seat until ctx ends. An error is one that the supervisor cannot
// go on with.
func (st *seat) run(ctx context.Context) error {
	for ctx.Err() == nil {
		e := st.fill(ctx)
		if errors.Is(e.err, proc.ErrGhost) {
			return e.err
		}
		if ctx.Err() != nil {
			break
		}
		delay, isolate, err := st.judge(e)
		if err != nil {
			return err
		}
		if isolate > 0 {
			st.isolate(ctx, isolate, e.err)
			continue
		}
		st.rest(ctx, delay, func() bool { return st.wanted != nil })
	}
	return nil
}

// judge decides what follows the end of a core: an end of everything, an
// isolation, or its successor after a delay.
func (st *seat) judge(e ending) (delay, isolate time.Duration, err error) {
	if e.lived >= st.s.cfg.Delays.Stable {
		st.delays.Reset()
	}
	switch {
	case e.asked && !e.ailing:
		st.log.Info().Err(e.err).Msg("agentcore ended and is replaced")
		return 0, 0, nil
	case e.asked:
		// A limit that no core can keep must not make it come and go without pause.
		st.log.Warn().Err(e.err).Msg("agentcore ended and is replaced")
		if e.lived < st.s.cfg.Delays.Stable {
			delay = st.delays.NextBackOff()
		}
		return delay, 0, nil
	}
	st.log.Warn().Err(e.err).Msg("agentcore ended; it is replaced")
	if !e.up {
		st.s.cfg.Handler.CoreFailed(st.index, e.err)
		if st.noneLeft() {
			return 0, 0, fmt.Errorf("%w: %d tries, the last: %w", ErrNoStart, st.failures, e.err)
		}
	}
	alone := !st.othersUp()
	if errors.Is(e.err, ErrIncompatible) {
		if alone {
			return 0, 0, e.err
		}
		return 0, st.loop.isolate(), nil
	}
	// A core that does not start although there is no other is either up soon or
	// the end of everything: nobody is served by waiting for longer.
	if alone && !e.up {
		return st.delays.NextBackOff(), 0, nil
	}
	if isolate = st.loop.crashed(time.Now(), e.lived); isolate > 0 {
		st.delays.Reset()
		return 0, isolate, nil
	}
	return st.delays.NextBackOff(), 0, nil
}

// noneLeft counts a start that failed and reports whether there is no core to
// hope for: this seat has failed too often in a row, and every other one has as
// well or is isolated.
func (st *seat) noneLeft() bool {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.failures++
	if st.failures < maxStarts {
		return false
	}
	for _, other := range st.s.seats {
		if other.failures < maxStarts && other.state != Isolated {
			return false
		}
	}
	return true
}

func (st *seat) othersUp() bool {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	for _, other := range st.s.seats {
		if other != st && (other.state == Up || other.state == Draining) {
			return true
		}
	}
	return false
}

// isolate leaves the seat empty for a while, or until somebody vouches for the
// next core.
func (st *seat) isolate(ctx context.Context, d time.Duration, cause error) {
	until := time.Now().Add(d)
	st.s.mu.Lock()
	st.vouched = false
	st.until = until
	st.moveLocked(Isolated, cause.Error())
	st.s.mu.Unlock()
	st.log.Error().Err(cause).Time("until", until).Msg("agentcore is in a crash loop: isolated")
	st.s.cfg.Handler.CoreIsolated(st.index, until, cause)

	st.rest(ctx, d, func() bool { return st.vouched || st.wanted != nil })
	st.s.mu.Lock()
	vouched := st.vouched || st.wanted != nil
	if vouched {
		st.failures = 0
	}
	st.until = time.Time{}
	st.moveLocked(Down, st.cause)
	st.s.mu.Unlock()
	if vouched {
		st.loop.forgive()
	}
	if ctx.Err() == nil {
		st.s.cfg.Handler.CoreIsolated(st.index, time.Time{}, nil)
	}
}

// rest waits for so long, until enough holds (it is called with Supervisor.mu
// held, whenever poke says so), or until ctx ends.
func (st *seat) rest(ctx context.Context, d time.Duration, enough func() bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		st.s.mu.Lock()
		done := enough()
		st.s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-st.poke:
		}
	}
}

// fill is the life of one core, to the end of the last process that it left.
func (st *seat) fill(ctx context.Context) ending {
	st.s.mu.Lock()
	st.spawned++
	n := st.spawned
	st.wanted, st.vouched = nil, false // whoever starts now is what was wanted
	st.moveLocked(Starting, st.cause)
	st.s.mu.Unlock()

	c, err := st.s.spawn(st, n)
	if err != nil {
		st.move(Down, err.Error())
		return ending{err: err}
	}
	st.enter(c)
	err = c.open(ctx)
	up := err == nil
	if up {
		st.s.mu.Lock()
		st.failures = 0
		st.moveLocked(Up, "")
		st.s.mu.Unlock()
		st.s.cfg.Handler.CoreUp(c)
		close(c.ready)
		err = st.serve(ctx, c)
	}
	e := ending{up: up, started: true, asked: c.asked || ctx.Err() != nil, ailing: c.ailing, lived: time.Since(c.began)}
	e.err = st.bury(c, e, err)
	return e
}

// bury ends what is left of the core and tells what became of it. It returns
// why the core is gone.
func (st *seat) bury(c *Core, e ending, cause error) error {
	cause = c.close(cause)
	var runs []string
	if e.up {
		runs = st.s.cfg.Handler.CoreRuns(c)
	}
	err := st.s.reap(c, runs)
	st.leave(cause)
	if err != nil {
		return errors.Join(cause, err)
	}
	if len(runs) > 0 {
		st.s.forget(runs)
	}
	st.s.report(c, e, cause, runs)
	if e.up {
		st.s.cfg.Handler.CoreDown(c, cause)
	}
	return cause
}

// reap ends everything that the dead core left: its own tree with the orphans
// that came from it, and what carries the tag or is in the cgroup of one of its
// runs. The other cores' processes live on.
func (s *Supervisor) reap(c *Core, runs []string) error {
	ctx := context.Background()
	if _, err := c.tree.Stop(ctx, proc.Stages{Kill: s.cfg.Stop.Kill}); err != nil {
		return fmt.Errorf("end what the core left: %w", err)
	}
	sweep := func() ([]proc.Proc, error) {
		return s.cfg.Host.SweepRuns(ctx, append(slices.Clip(runs), c.tree.Run(), job.FuseTag(c.tree.Run())))
	}
	if len(s.seats) == 1 {
		// There is no other whose processes could be met.
		sweep = func() ([]proc.Proc, error) { return s.cfg.Host.SweepTag(ctx, string(s.cfg.Instance)) }
	}
	killed, err := sweep()
	if err != nil {
		return fmt.Errorf("end what the core left: %w", err)
	}
	for _, p := range killed {
		c.log.Warn().Int("pid", p.Pid).Str("command", p.Comm).Msg("ended a process that a dead core had left")
	}
	return nil
}

// enter and leave put a core into the seat and take it out.
func (st *seat) enter(c *Core) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.core = c
	st.tellLocked()
}

func (st *seat) leave(cause error) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.core = nil
	st.moveLocked(Down, cause.Error())
}

func (st *seat) move(to State, cause string) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.moveLocked(to, cause)
}

// moveLocked changes the state and tells who waits for that.
func (st *seat) moveLocked(to State, cause string) {
	st.state, st.since, st.cause = to, time.Now(), cause
	st.tellLocked()
}

// tellLocked wakes who waits for a change of the seat.
func (st *seat) tellLocked() {
	close(st.s.changed)
	st.s.changed = make(chan struct{})
}

// kick makes the seat look at what somebody wants.
func (st *seat) kick() {
	select {
	case st.poke <- struct{}{}:
	default:
	}
}
