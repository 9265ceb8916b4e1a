package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
)

// Config of a Supervisor. A zero value stands for the default that is named.
type Config struct {
	Cores    int      // how many cores; 1
	Command  []string // the core's program and arguments
	Env      []string // its environment
	Host     *proc.Host
	Instance job.InstanceID
	StateDir string
	Version  string
	Handler  Handler
	Log      zerolog.Logger
	Stderr   io.Writer // gets the lines of the cores' logs, whole and with their newlines, one or more a Write, from several goroutines

	Heartbeat time.Duration // between two heartbeats; 1 s
	HangAfter time.Duration // a core that owes an answer for so long is hung; 10 s
	Stop      proc.Stages   // of the core itself, once it was asked to end or is hung

	// A core that crosses one of these is drained and replaced. 0 means no limit.
	MaxRSS        int64         // bytes of resident memory
	MaxCPU        float64       // of one CPU, on average over CPUFor
	CPUFor        time.Duration // 30 s
	SlowHeartbeat time.Duration // heartbeats that take longer, slowBeats times in a row

	Intensity Intensity // when a core that dies again and again is isolated
	Delays    Delays    // before a core that died is replaced

	// Crash gets the report of each core that ended although nobody asked for it.
	Crash func(*Report)
	// Forget removes what runs have left besides processes: those with these tags,
	// or with nil those of all runs. It is called when nothing of them lives.
	Forget func(tags []string)
}

// Delays before a core that died is replaced: the first, growing to the
// largest, from the start again after a core that lived long enough.
type Delays struct {
	First  time.Duration // 50 ms
	Max    time.Duration // 10 s
	Stable time.Duration // 30 s
}

// maxStarts is how many starts in a row may not even get to hello, with no
// other core left, before the supervisor gives up.
const maxStarts = 5

var (
	// ErrIncompatible: the core speaks another version of the protocol.
	ErrIncompatible = errors.New("agentcore of another version")
	// ErrNoStart: the core does not come up however often it is started.
	ErrNoStart = errors.New("agentcore does not start")
	// ErrHung: the core owed an answer for longer than it may.
	ErrHung = errors.New("agentcore hangs")
	// ErrReplaced: the core was shut down to make room for its successor.
	ErrReplaced = errors.New("agentcore was replaced")
	// ErrNotRunning: there are no cores before Run and after it.
	ErrNotRunning = errors.New("no agentcore is supervised")
)

// Supervisor keeps the cores alive. Make it with New, run it once.
type Supervisor struct {
	cfg   Config
	seats []*seat
	hurry context.Context // done: shutdowns skip their gentle stages
	now   context.CancelFunc

	restarting chan struct{} // capacity 1, held by Restart: one core at a time
	running    chan struct{} // closed when Run begins
	ended      chan struct{} // closed when Run has ended

	mu      sync.Mutex    // guards what follows, and the state of each seat; never held while the Handler is called
	changed chan struct{} // closed and replaced when the state of a seat changes
}

// New returns a supervisor; nothing is started before Run.
func New(cfg Config) *Supervisor {
	cfg.Cores = max(cfg.Cores, 1)
	cfg.Heartbeat = cmp.Or(max(cfg.Heartbeat, 0), time.Second)
	cfg.HangAfter = cmp.Or(max(cfg.HangAfter, 0), 10*time.Second)
	cfg.CPUFor = cmp.Or(max(cfg.CPUFor, 0), 30*time.Second)
	cfg.Delays.First = cmp.Or(cfg.Delays.First, 50*time.Millisecond)
	cfg.Delays.Max = cmp.Or(cfg.Delays.Max, 10*time.Second)
	cfg.Delays.Stable = cmp.Or(cfg.Delays.Stable, 30*time.Second)
	cfg.Intensity = cfg.Intensity.withDefaults()
	s := &Supervisor{
		cfg: cfg, restarting: make(chan struct{}, 1), running: make(chan struct{}), ended: make(chan struct{}),
		changed: make(chan struct{}),
	}
	s.hurry, s.now = context.WithCancel(context.Background())
	for i := range cfg.Cores {
		s.seats = append(s.seats, newSeat(s, i+1))
	}
	return s
}

// Run starts the cores and replaces each whenever it ends, until ctx ends; then
// it shuts them down and waits until nothing of them is left. It returns
// ErrIncompatible or ErrNoStart if there is no core to go on with, or that a
// process could not be killed (proc.ErrGhost), or the cause of ctx.
func (s *Supervisor) Run(ctx context.Context) error {
	close(s.running)
	defer close(s.ended)
	if err := s.sweep(ctx); err != nil {
		return err
	}
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	fatal := make([]error, len(s.seats))
	var seats sync.WaitGroup
	for i, st := range s.seats {
		seats.Go(func() {
			if fatal[i] = st.run(life); fatal[i] != nil {
				end(fatal[i])
			}
		})
	}
	seats.Wait()
	for _, err := range fatal {
		if errors.Is(err, proc.ErrGhost) { // matters more than what came first
			return err
		}
	}
	return context.Cause(life)
}

// sweep ends what an earlier scheduler left: nothing of it may live when work
// is given out.
func (s *Supervisor) sweep(ctx context.Context) error {
	killed, err := s.cfg.Host.SweepTag(context.WithoutCancel(ctx), string(s.cfg.Instance))
	if err != nil {
		return fmt.Errorf("end what an earlier scheduler left: %w", err)
	}
	if len(killed) > 0 {
		s.cfg.Log.Warn().Int("killed", len(killed)).Msg("ended processes that an earlier scheduler had left")
	}
	s.forget(nil)
	return nil
}

func (s *Supervisor) forget(tags []string) {
	if s.cfg.Forget != nil {
		s.cfg.Forget(tags)
	}
}

// Hurry makes shutdowns, under way or to come, skip the gentle stages.
func (s *Supervisor) Hurry() {
	s.now()
	var asked sync.WaitGroup
	for _, c := range s.live() {
		asked.Go(c.hurry)
	}
	asked.Wait()
}

// live returns the cores whose process was started and is not known to be dead.
func (s *Supervisor) live() []*Core {
	s.mu.Lock()
	defer s.mu.Unlock()
	var cores []*Core
	for _, st := range s.seats {
		if st.core != nil {
			cores = append(cores, st.core)
		}
	}
	return cores
}
