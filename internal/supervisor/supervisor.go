package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// Handler hears what becomes of the cores. The calls of one core come one
// after the other; its notifications stop before its CoreDown.
type Handler interface {
	// CoreUp is told of a core that is configured and takes work.
	CoreUp(c *Core)
	// CoreNotify is told each notification of the core, in order. It must not
	// wait for the core.
	CoreNotify(c *Core, method string, params json.RawMessage)
	// CoreDown is told when the core and everything that it left is dead.
	CoreDown(c *Core, cause error)
	// Circuits returns what the last core said of its circuit breakers, for the
	// next one.
	Circuits() []ipc.Circuit
	// CoreFailed is told of a core that did not come up; another is tried.
	CoreFailed(cause error)
}

// Config of a Supervisor.
type Config struct {
	Command  []string // the core's program and arguments
	Env      []string // its environment
	Host     *proc.Host
	Instance job.InstanceID
	StateDir string
	Version  string
	Settings ipc.Configure
	Handler  Handler
	Log      zerolog.Logger
	Stderr   io.Writer // gets each line of the core's log, with its newline, one Write a line

	Heartbeat time.Duration // between two heartbeats; 1 s
	HangAfter time.Duration // a core that owes an answer for so long is hung; 10 s
	Stop      proc.Stages   // of the core itself, once it was asked to end or is hung
}

// Restart bounds how fast and how often a core that dies is replaced.
const (
	firstDelay = 50 * time.Millisecond
	maxDelay   = 10 * time.Second
	stable     = 30 * time.Second // a core that lived so long starts the count anew
	maxStarts  = 5                // starts in a row that did not even get to hello
)

var (
	// ErrIncompatible: the core speaks another version of the protocol.
	ErrIncompatible = errors.New("agentcore of another version")
	// ErrNoStart: the core does not come up however often it is started.
	ErrNoStart = errors.New("agentcore does not start")
	// ErrHung: the core owed an answer for longer than it may.
	ErrHung = errors.New("agentcore hangs")
)

// Supervisor keeps one core alive. Make it with New, run it once.
type Supervisor struct {
	cfg   Config
	hurry context.Context // done: shutdowns skip their gentle stages
	now   context.CancelFunc

	mu   sync.Mutex // guards what follows
	core *Core      // the one that is up, or nil
}

// New returns a supervisor; nothing is started before Run.
func New(cfg Config) *Supervisor {
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = time.Second
	}
	if cfg.HangAfter <= 0 {
		cfg.HangAfter = 10 * time.Second
	}
	s := &Supervisor{cfg: cfg}
	s.hurry, s.now = context.WithCancel(context.Background())
	return s
}

// Hurry makes a shutdown, under way or to come, skip the gentle stages.
func (s *Supervisor) Hurry() {
	s.now()
	if c := s.current(); c != nil {
		c.hurry()
	}
}

func (s *Supervisor) current() *Core {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core
}

func (s *Supervisor) setCurrent(c *Core) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core = c
}

// Run starts a core and replaces it whenever it ends, until ctx ends; then it
// shuts the core down and waits until nothing of it is left. It returns
// ErrIncompatible or ErrNoStart, or that a process could not be killed
// (proc.ErrGhost), or the cause of ctx.
func (s *Supervisor) Run(ctx context.Context) error {
	// Nothing of an earlier scheduler may live when work is given out.
	killed, err := s.cfg.Host.SweepTag(context.WithoutCancel(ctx), string(s.cfg.Instance))
	if err != nil {
		return fmt.Errorf("end what an earlier scheduler left: %w", err)
	}
	if len(killed) > 0 {
		s.cfg.Log.Warn().Int("killed", len(killed)).Msg("ended processes that an earlier scheduler had left")
	}
	delays := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstDelay), backoff.WithMaxInterval(maxDelay), backoff.WithMaxElapsedTime(0))
	failures := 0
	for n := 1; ; n++ {
		up, lived, err := s.runOne(ctx, n)
		switch {
		case ctx.Err() != nil:
			if errors.Is(err, proc.ErrGhost) {
				return err
			}
			return context.Cause(ctx)
		case errors.Is(err, ErrIncompatible), errors.Is(err, proc.ErrGhost):
			return err
		case up:
			failures = 0
		default:
			if failures++; failures >= maxStarts {
				return fmt.Errorf("%w: %d tries, the last: %w", ErrNoStart, failures, err)
			}
		}
		if lived >= stable {
			delays.Reset()
		}
		s.cfg.Log.Warn().Err(err).Msg("agentcore ended; it is replaced")
		if !up {
			s.cfg.Handler.CoreFailed(err)
		}
		select {
		case <-time.After(delays.NextBackOff()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// runOne is the life of one core, to the end of the last process that it left.
func (s *Supervisor) runOne(ctx context.Context, n int) (up bool, lived time.Duration, err error) {
	if ctx.Err() != nil {
		return false, 0, context.Cause(ctx)
	}
	began := time.Now()
	c, err := s.spawn(n)
	if err != nil {
		return false, 0, err
	}
	err = c.open(ctx)
	if err == nil {
		up = true
		s.setCurrent(c)
		s.cfg.Handler.CoreUp(c)
		err = c.serve(ctx)
		s.setCurrent(nil)
	}
	lived = time.Since(began)
	cause := c.close(err)
	swept := s.reap(c)
	if up {
		s.cfg.Handler.CoreDown(c, cause)
	}
	return up, lived, errors.Join(cause, swept)
}

// reap ends everything that the core left: its own tree, and whatever carries
// a tag of this instance.
func (s *Supervisor) reap(c *Core) error {
	if _, err := c.tree.Stop(context.Background(), proc.Stages{Kill: s.cfg.Stop.Kill}); err != nil {
		return fmt.Errorf("end what the core left: %w", err)
	}
	killed, err := s.cfg.Host.SweepTag(context.Background(), string(s.cfg.Instance))
	if err != nil {
		return fmt.Errorf("end what the core left: %w", err)
	}
	for _, p := range killed {
		s.cfg.Log.Warn().Int("pid", p.Pid).Str("command", p.Comm).Msg("ended a process that a dead core had left")
	}
	return nil
}
