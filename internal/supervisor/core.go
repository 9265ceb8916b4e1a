package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
	"github.com/rs/zerolog"
)

// Core is one agentcore process.
type Core struct {
	s    *Supervisor
	tree *proc.Tree
	peer *ipc.Peer
	log  zerolog.Logger

	peerDone chan struct{} // closed when the peer's Run has returned
	peerErr  error         // set before peerDone is closed
	stderr   stderrTail
	readers  sync.WaitGroup

	up atomic.Bool // notifications are passed on from hello on

	Info ipc.HelloResult // set by hello
}

// helloTime is how long a core may take to start and to answer hello.
const helloTime = 20 * time.Second

// spawn starts a core process and the conversation with it.
func (s *Supervisor) spawn(n int) (*Core, error) {
	tree, err := s.cfg.Host.Start(proc.Spec{
		Run:  fmt.Sprintf("%s/core/%d-%d", s.cfg.Instance, os.Getpid(), n),
		Path: s.cfg.Command[0], Args: s.cfg.Command[1:], Env: s.cfg.Env,
		PipeStdin: true, PipeStdout: true, PipeStderr: true,
		// Its own session, so that the terminal's Ctrl-C reaches only us; and no
		// death signal: it must live to stop its workers when we die.
		NewSession: true, Subreaper: true,
	})
	if err != nil {
		return nil, fmt.Errorf("start agentcore: %w", err)
	}
	c := &Core{s: s, tree: tree, log: s.cfg.Log.With().Int("core_pid", tree.Pid()).Logger(), peerDone: make(chan struct{})}
	c.peer = ipc.NewPeer(tree.Stdout(), tree.Stdin(), ipc.Config{
		Name: "agentcore", Log: c.log, Handler: (*coreHandler)(c), HangLimit: s.cfg.HangAfter,
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
		Methods: []string{ipc.NotifyWorkerEvent, ipc.NotifyJobCompleted, ipc.NotifyJobCancelled, ipc.NotifyEscalation, ipc.NotifyCircuits},
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
	c.up.Store(true)
	settings := cfg.Settings
	settings.Circuits = cfg.Handler.Circuits()
	return c.peer.Call(ctx, ipc.MethodConfigure, settings, nil)
}

// serve watches the core until it ends, hangs or ctx ends.
func (c *Core) serve(ctx context.Context) error {
	tick := time.NewTicker(c.s.cfg.Heartbeat)
	defer tick.Stop()
	for seq := int64(1); ; seq++ {
		select {
		case <-c.peer.ReadDone():
			<-c.peerDone
			return c.peerErr
		case <-c.tree.Exited():
			return c.exitError()
		case <-ctx.Done():
			return c.shutdown(context.Cause(ctx))
		case <-tick.C:
			if err := c.heartbeat(seq); err != nil {
				return err
			}
		}
	}
}

// heartbeat asks whether the core is alive; no answer within HangAfter means
// that it hangs.
func (c *Core) heartbeat(seq int64) error {
	limit := c.s.cfg.HangAfter
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("%w: no heartbeat for %s", ErrHung, limit))
	defer cancel()
	return c.peer.Call(ctx, ipc.MethodHeartbeat, ipc.Heartbeat{Seq: seq}, nil)
}

// shutdown asks the core to end and waits until it has, as long as its runs'
// stop stages can take and then some.
func (c *Core) shutdown(cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.s.cfg.HangAfter)
	defer cancel()
	c.peer.ExpectEOF()
	err := c.peer.Call(ctx, ipc.MethodShutdown, ipc.Shutdown{Reason: cause.Error(), Now: c.s.hurry.Err() != nil}, nil)
	if err != nil {
		return err
	}
	stop := c.s.cfg.Settings.Stop
	patience := stop.Interrupt.Std() + stop.Terminate.Std() + stop.Kill.Std() + shutdownGrace
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.peerDone:
		return cause
	case <-timer.C:
		return fmt.Errorf("%w: it did not end within %s of being asked to", ErrHung, patience)
	}
}

// shutdownGrace is how long a core may take, beyond the stop stages of its
// runs, to collect their patches and exit.
const shutdownGrace = 60 * time.Second

// hurry asks a core that is shutting down to skip the gentle stages.
func (c *Core) hurry() {
	ctx, cancel := context.WithTimeout(context.Background(), c.s.cfg.HangAfter)
	defer cancel()
	if err := c.peer.Call(ctx, ipc.MethodShutdown, ipc.Shutdown{Reason: "at once", Now: true}, nil); err != nil {
		c.log.Debug().Err(err).Msg("hurry the core")
	}
}

// close ends the conversation and the core process, if they have not ended,
// and returns why the core is gone.
func (c *Core) close(cause error) error {
	stages := c.s.cfg.Stop
	if errors.Is(cause, ErrHung) || errors.Is(cause, ipc.ErrHung) || errors.Is(cause, ipc.ErrGarbage) {
		// It does not listen, or babbles: no use in being gentle with the core
		// itself. A Go crash dump of where it hangs is worth a moment, though.
		c.tree.Signal(syscall.SIGQUIT)
		stages = proc.Stages{First: func(context.Context) error { return nil }, FirstWait: dumpTime, Kill: stages.Kill}
	}
	c.peer.Stop(cause)
	<-c.peerDone
	// After the peer's end the core's stdin is closed: a core that works ends by
	// itself, with its runs.
	c.tree.Stop(context.Background(), stages)
	c.tree.ClosePipes()
	c.readers.Wait()
	select {
	case <-c.tree.Exited():
	default:
		return cause
	}
	state := c.tree.ExitState().String()
	if words := c.stderr.lastWords(); words != "" {
		state += "; its last words: " + words
	}
	if strings.Contains(cause.Error(), state) {
		return cause
	}
	return fmt.Errorf("%w; %s", cause, state)
}

// dumpTime is how long a hung core has to print where it hangs.
const dumpTime = 500 * time.Millisecond

func (c *Core) exitError() error {
	// What it sent before it died is still worth handling.
	select {
	case <-c.peerDone:
	case <-time.After(c.s.cfg.HangAfter):
	}
	return fmt.Errorf("agentcore died: %s", c.tree.ExitState())
}

// PID returns the core's process id.
func (c *Core) PID() int { return c.tree.Pid() }

// Call asks the core; see ipc.Peer.Call.
func (c *Core) Call(ctx context.Context, method string, params, result any) error {
	return c.peer.Call(ctx, method, params, result)
}

// coreHandler is Core as an ipc.Handler, kept off its own methods.
type coreHandler Core

// HandleCall: a core asks nothing of its scheduler.
func (h *coreHandler) HandleCall(_ context.Context, method string, _ json.RawMessage) (any, error) {
	return nil, ipc.MethodNotFound(method)
}

// HandleNotify passes the core's notifications on.
func (h *coreHandler) HandleNotify(_ context.Context, method string, params json.RawMessage) {
	c := (*Core)(h)
	if !c.up.Load() {
		c.log.Warn().Str("method", method).Msg("notification before hello ignored")
		return
	}
	c.s.cfg.Handler.CoreNotify(c, method, params)
}

// tailSize is how much of a core's standard error is kept for the report of its end.
const tailSize = 16 << 10

// stderrTail copies a core's log on and keeps its end.
type stderrTail struct {
	mu   sync.Mutex
	text []byte
}

func (t *stderrTail) copy(r *os.File, w interface{ Write([]byte) (int, error) }) {
	buf := make([]byte, 32<<10)
	var line []byte
	for {
		n, err := r.Read(buf)
		t.keep(buf[:n])
		if w != nil {
			line = append(line, buf[:n]...)
			for {
				end := bytes.IndexByte(line, '\n')
				if end < 0 {
					break
				}
				w.Write(line[:end+1])
				line = line[end+1:]
			}
			if len(line) > 1<<20 { // a line without an end is no log line
				line = nil
			}
		}
		if err != nil {
			return
		}
	}
}

func (t *stderrTail) keep(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if extra := len(t.text) - tailSize; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
}

// lastWords returns the end of what the core printed besides its log, which is
// kept elsewhere: a panic, or what a program says that is no core.
func (t *stderrTail) lastWords() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var words []string
	for line := range strings.Lines(strings.ToValidUTF8(string(t.text), "\uFFFD")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "{") {
			words = append(words, line)
		}
	}
	// A crash dump says first what went wrong; anything else says it last.
	const most = 5
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "panic: ") || strings.HasPrefix(w, "fatal error: ") }); i >= 0 {
		words = words[i:min(i+1, len(words))]
	}
	return strings.Join(words[max(0, len(words)-most):], " | ")
}
