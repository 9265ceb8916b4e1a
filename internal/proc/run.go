package proc

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// helperPipeGrace is how long Run reads on from a helper's pipes after the helper has exited, when something else still
// holds them open; os/exec would wait for ever.
const helperPipeGrace = 5 * time.Second

// Run runs a short helper command, such as git, to its end. It is to be used in place of cmd.Run, whose child the reaper
// would take for an orphan. The command gets a session of its own; when ctx ends, all of that session is killed, and the
// error holds the cause of ctx beside that of the command.
//
// A helper must not leave a daemon behind (git: gc.auto=0): it belongs to no run and is killed when the next run ends.
// Cmd must not come from exec.CommandContext with a context that ends earlier than ctx: that kills the leader alone.
func (h *Host) Run(ctx context.Context, cmd *exec.Cmd) error {
	if err := h.run(ctx, cmd); err != nil {
		return fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	return nil
}

func (h *Host) run(ctx context.Context, cmd *exec.Cmd) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = sysProcAttr(&Spec{NewSession: true, PdeathSignal: syscall.SIGKILL})
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setpgid = true, false
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = helperPipeGrace
	}

	var c *child
	err := h.onSpawner(func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.checkOpen(); err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		c = h.register(cmd.Process.Pid, nil)
		h.helpers++
		return nil
	})
	if err != nil {
		return err
	}
	pid := cmd.Process.Pid
	defer func() {
		h.mu.Lock()
		h.unregister(pid, c)
		h.helpers--
		h.mu.Unlock()
		h.kickReaper()
	}()

	// Until cmd.Wait reaps it, the pid and so its session's number cannot be reused: the kill below hits no stranger.
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.awaitExit(pid)
	}()
	var cause error
	select {
	case <-over:
	case <-ctx.Done():
		cause = context.Cause(ctx)
		h.killSession(pid)
		<-over
	}
	return errors.Join(cause, cmd.Wait())
}
