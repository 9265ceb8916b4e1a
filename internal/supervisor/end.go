package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// shutdown asks the core to end and waits until it has, as long as its runs'
// stop stages can take and then some. It returns the cause if the core obeyed.
func (c *Core) shutdown(cause error) error {
	c.asked = true
	c.mu.Lock()
	c.leaving = true
	stop := c.stop
	c.mu.Unlock()
	limit := c.s.cfg.HangAfter
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("%w: no answer to shutdown for %s", ErrHung, limit))
	defer cancel()
	c.peer.ExpectEOF()
	// Hurry looks at leaving after it has ended s.hurry: one of us sends Now.
	err := c.peer.Call(ctx, ipc.MethodShutdown, ipc.Shutdown{Reason: cause.Error(), Now: c.s.hurry.Err() != nil}, nil)
	if err != nil {
		return err
	}
	patience := stop.Interrupt.Std() + stop.Terminate.Std() + stop.Kill.Std() + shutdownGrace
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for hurried := c.s.hurry.Done(); ; {
		select {
		case <-c.peerDone:
			return cause
		case <-c.tree.Exited():
			c.awaitPeer()
			return cause
		case <-hurried:
			// Its runs have no gentle stages any more; and it may not even hear that.
			hurried, patience = nil, stop.Kill.Std()+limit
			timer.Reset(patience)
		case <-timer.C:
			return fmt.Errorf("%w: it did not end within %s of being asked to", ErrHung, patience)
		}
	}
}

// shutdownGrace is how long a core may take, beyond the stop stages of its
// runs, to collect their patches and exit.
const shutdownGrace = 60 * time.Second

// hurry asks a core that is shutting down to skip the gentle stages.
func (c *Core) hurry() {
	c.mu.Lock()
	leaving := c.leaving
	c.mu.Unlock()
	if !leaving {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.s.cfg.HangAfter)
	defer cancel()
	if err := c.peer.Call(ctx, ipc.MethodShutdown, ipc.Shutdown{Reason: "at once", Now: true}, nil); err != nil {
		c.log.Debug().Err(err).Msg("hurry the core")
	}
}

// close ends the conversation and the core process, if they have not ended,
// and returns why the core is gone.
func (c *Core) close(cause error) error {
	// After the peer's end the core's stdin is closed: a core that works ends by
	// itself, with its runs, and a signal would only disturb it.
	stages := c.s.cfg.Stop
	stages.First, stages.FirstWait = func(context.Context) error { return nil }, exitTime
	if hangs(cause) {
		// It does not listen, or babbles: no use in being gentle with the core itself.
		c.question()
		stages = proc.Stages{Kill: stages.Kill}
	}
	c.peer.Stop(cause)
	<-c.peerDone
	// What this cannot end is met again by the reaping.
	c.tree.Stop(context.Background(), stages)
	// A dead core's dump may still be in the pipe. Who is not dead may hold it.
	_ = c.tree.Stderr().SetReadDeadline(time.Now().Add(readTime))
	c.readers.Wait()
	c.tree.ClosePipes()
	state := c.exit()
	if state == "" {
		return cause
	}
	if words := c.stderr.lastWords(); words != "" {
		state += "; its last words: " + words
	}
	if strings.Contains(cause.Error(), state) {
		return cause
	}
	return fmt.Errorf("%w; %s", cause, state)
}

// question has a core that hangs print a Go crash dump of where, which is worth a moment; one that somebody stopped prints
// it when it goes on. The wire must be open: at its end a core that only babbles would exit instead.
func (c *Core) question() {
	c.asking.Do(func() {
		c.tree.Signal(syscall.SIGQUIT)
		c.tree.Signal(syscall.SIGCONT)
		select {
		case <-c.tree.Exited():
		case <-time.After(dumpTime):
		}
	})
}

func hangs(cause error) bool {
	return errors.Is(cause, ErrHung) || errors.Is(cause, ipc.ErrHung) || errors.Is(cause, ipc.ErrGarbage)
}

// exitTime is how long a core has to exit when the conversation has ended.
const exitTime = 2 * time.Second

// readTime is how long the last words of a core may take to be read.
const readTime = 2 * time.Second

// dumpTime is how long a hung core has to print where it hangs.
const dumpTime = 2 * time.Second

// exit returns how the process ended, "" if it has not.
func (c *Core) exit() string {
	select {
	case <-c.tree.Exited():
		return c.tree.ExitState().String()
	default:
		return ""
	}
}

// exitError is why a core that has exited is gone.
func (c *Core) exitError() error {
	c.awaitPeer()
	return fmt.Errorf("agentcore died: %s", c.tree.ExitState())
}

// awaitPeer lets the conversation with a core that has exited come to its end:
// what it sent before is worth handling. Another process may hold the wire open.
func (c *Core) awaitPeer() {
	select {
	case <-c.peerDone:
	case <-time.After(c.s.cfg.HangAfter):
	}
}

// report hands out the crash report of a core, if it crashed: it ended and
// nobody had asked for that, or it had to be forced.
func (s *Supervisor) report(c *Core, e ending, cause error, runs []string) {
	dump := c.stderr.dump()
	if s.cfg.Crash == nil || errors.Is(cause, ErrIncompatible) || e.asked && dump == "" && !hangs(cause) {
		return
	}
	s.cfg.Crash(&Report{
		ID: uuid.Must(uuid.NewV7()).String(), Time: time.Now().UTC(), Core: c.index, PID: c.PID(), Version: c.Info.Version,
		Cause: cause.Error(), Exit: c.exit(), Uptime: job.Duration(e.lived), Runs: runs,
		LastWords: c.stderr.lastWords(), Stderr: c.stderr.tail(), Dump: dump,
	})
}
