package workercli

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"
)

// pipeGrace is how long output is still read after the command has ended, when
// something that it left behind holds the pipe open.
const pipeGrace = 5 * time.Second

// runGroup runs the command in a process group of its own, which is killed
// when ctx ends. Ctrl-C at a terminal therefore reaches this program alone.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeGrace
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return errors.Join(context.Cause(ctx), <-ended)
	}
}
