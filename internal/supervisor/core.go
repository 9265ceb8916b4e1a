package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
)

// Core is one agentcore process and the conversation with it.
type Core struct {
	s     *Supervisor
	away  *Away // of a core on another host; else nil
	index int
	pid   int
	tree  *proc.Tree
	peer  *ipc.Peer
	log   zerolog.Logger
	began time.Time

	peerDone chan struct{} // closed when the peer's Run has returned
	peerErr  error         // set before peerDone is closed
	stderr   stderrLog
	readers  sync.WaitGroup
	asking   sync.Once // see question

	greeted atomic.Bool   // it answered hello
	ready   chan struct{} // closed when CoreUp was told: notifications wait for that
	drained chan struct{} // closed by Drained

	Info ipc.HelloResult // set by hello

	// These belong to the goroutine of the core's seat.
	replaced error // wraps ErrReplaced; set when it is drained
	ailing   bool  // it is drained because of its health
	asked    bool  // it was asked to end

	configuring sync.Mutex // held while settings are asked for and sent, so that the last ones sent are the newest

	mu       sync.Mutex // guards what follows
	stop     ipc.Stages // of its runs, as configured last
	draining bool       // Drained counts from now on
	empty    bool       // drained is closed
	leaving  bool       // a shutdown was sent, or is about to be
	beats    []time.Duration
	pulse    pulse
}

// helloTime is how long a core may take to start and to answer hello.
const helloTime = 20 * time.Second

// spawn starts the nth core process of a seat and the conversation with it.
func (s *Supervisor) spawn(st *seat, n int) (*Core, error) {
	run := fmt.Sprintf("%s/core/%d-%d-%d", s.cfg.Instance, os.Getpid(), st.index, n)
	tree, err := s.cfg.Host.Start(proc.Spec{
		Run: run, Name: proc.CoreName(run),
		Path: s.cfg.Command[0], Args: s.cfg.Command[1:], Env: s.cfg.Env,
		PipeStdin: true, PipeStdout: true, PipeStderr: true,
		// Its own session, so that the terminal's Ctrl-C reaches only us; and no
		// death signal: it must live to stop its workers when we die.
		NewSession: true, Subreaper: true,
	})
	if err != nil {
		return nil, fmt.Errorf("start agentcore: %w", err)
	}
	c := &Core{
		s: s, index: st.index, pid: tree.Pid(), tree: tree, log: st.log.With().Int("core_pid", tree.Pid()).Logger(), began: time.Now(),
		peerDone: make(chan struct{}), ready: make(chan struct{}), drained: make(chan struct{}),
	}
	c.peer = ipc.NewPeer(tree.Stdout(), tree.Stdin(), ipc.Config{
		Name: "agentcore", Log: c.log, Handler: (*coreHandler)(c), HangLimit: s.cfg.HangAfter,
		BeforeClose: func(cause error) {
			if hangs(cause) {
				c.question()
			}
		},
	})
	c.readers.Go(func() { c.stderr.copy(tree.Stderr(), s.cfg.Stderr) })
	go func() {
		defer close(c.peerDone)
		c.peerErr = c.peer.Run(context.Background())
	}()
	return c, nil
}

// open says hello and configures the core, unless ctx ends first.
func (c *Core) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, helloTime, fmt.Errorf("%w: no answer to hello within %s", ErrHung, helloTime))
	defer cancel()
	cfg := &c.s.cfg
	err := c.peer.Call(ctx, ipc.MethodHello, ipc.Hello{
		Protocol: ipc.ProtocolVersion, Version: cfg.Version, Instance: cfg.Instance, StateDir: cfg.StateDir,
		Methods: []string{
			ipc.NotifyWorkerEvent, ipc.NotifyJobCompleted, ipc.NotifyJobCancelled, ipc.NotifyEscalation,
			ipc.NotifyMetrics, ipc.NotifyCircuits,
		},
	}, &c.Info)
	var refused *ipc.Error
	if errors.As(err, &refused) && refused.Code == ipc.CodeVersion {
		return fmt.Errorf("%w: %s", ErrIncompatible, refused.Message)
	}
	if err == nil && c.Info.Protocol != ipc.ProtocolVersion {
		return fmt.Errorf("%w: agentcore %s speaks protocol %d, this scheduler (%s) speaks %d; install both from one release",
			ErrIncompatible, c.Info.Version, c.Info.Protocol, cfg.Version, ipc.ProtocolVersion)
	}
	if err != nil {
		return err
	}
	c.greeted.Store(true)
	return c.configure(ctx)
}

// configure sends the settings as they are now.
func (c *Core) configure(ctx context.Context) error {
	c.configuring.Lock()
	defer c.configuring.Unlock()
	settings := c.s.cfg.Handler.Settings(c)
	if err := c.peer.Call(ctx, ipc.MethodConfigure, settings, nil); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop = settings.Stop
	return nil
}

// Index returns the core's place: 1, 2, …, up to Config.Cores.
func (c *Core) Index() int { return c.index }

// PID returns the core's process id.
func (c *Core) PID() int { return c.pid }

// Call asks the core; see ipc.Peer.Call.
func (c *Core) Call(ctx context.Context, method string, params, result any) error {
	err := c.peer.Call(ctx, method, params, result)
	var refused *ipc.Error
	if c.away != nil && errors.As(err, &refused) && refused.Code == ipc.CodeCoreGone {
		return fmt.Errorf("%w: %s", errCoreGone, refused.Message) // the core has not answered
	}
	return err
}

// Drained says that a core of which Handler.CoreDraining was told has no run
// any more. It waits for nothing, and counts once.
func (c *Core) Drained() {
	if c.away != nil {
		return // its own host counts its runs
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining && !c.empty {
		c.empty = true
		close(c.drained)
	}
}

// TakeHeartbeats returns the round trips of the heartbeats since it was called
// last, the last maxBeats of them.
func (c *Core) TakeHeartbeats() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	beats := c.beats
	c.beats = nil
	return beats
}

// coreHandler is Core as an ipc.Handler, kept off its own methods.
type coreHandler Core

// HandleCall passes the core's calls on, once CoreUp was told.
func (h *coreHandler) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	c := (*Core)(h)
	if !c.greeted.Load() {
		return nil, &ipc.Error{Code: ipc.CodeInvalidRequest, Message: "a call before hello was answered"}
	}
	select {
	case <-c.ready:
		return c.s.cfg.Handler.CoreCall(ctx, c, method, params)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// HandleNotify passes the core's notifications on, once CoreUp was told.
func (h *coreHandler) HandleNotify(ctx context.Context, method string, params json.RawMessage) {
	c := (*Core)(h)
	if !c.greeted.Load() {
		c.log.Warn().Str("method", method).Msg("notification before hello ignored")
		return
	}
	select {
	case <-c.ready:
		c.s.cfg.Handler.CoreNotify(c, method, params)
	case <-ctx.Done():
	}
}
