package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/agentsched/agentsched/internal/proc"
)

// maxOutput is how much of a failed command's output goes into the log, in bytes.
const maxOutput = 2 << 10

// Through returns a Config.Run that starts each command as a process tree of the
// host, under a tag below prefix, with the environment. When it has ended, or
// its context has, whatever it started is killed: it leaves nothing behind.
func Through(host *proc.Host, prefix string, environ []string) func(ctx context.Context, argv []string, stdin []byte) error {
	var number atomic.Int64
	return func(ctx context.Context, argv []string, stdin []byte) error {
		tree, err := host.Start(proc.Spec{
			Run:  fmt.Sprintf("%s/%d", prefix, number.Add(1)),
			Path: argv[0], Args: argv[1:], Env: environ, NewSession: true,
			PipeStdin: true, PipeStdout: true, PipeStderr: true, PdeathSignal: syscall.SIGKILL,
		})
		if err != nil {
			return err
		}
		out := &tail{}
		var pipes sync.WaitGroup
		pipes.Go(func() {
			tree.Stdin().Write(stdin) //nolint:errcheck // a command need not read it
			tree.Stdin().Close()
		})
		pipes.Go(func() { io.Copy(out, tree.Stdout()) }) //nolint:errcheck // what was read is there
		pipes.Go(func() { io.Copy(out, tree.Stderr()) }) //nolint:errcheck // likewise
		var cause error
		select {
		case <-tree.Exited():
		case <-ctx.Done():
			cause = context.Cause(ctx)
		}
		_, stopped := tree.Stop(context.WithoutCancel(ctx), proc.Stages{})
		if stopped != nil {
			tree.ClosePipes() // somebody who cannot be killed may hold them open for ever
		}
		pipes.Wait()
		tree.ClosePipes()
		switch state := tree.ExitState(); {
		case cause != nil:
			err = cause
		case !state.Success():
			err = errors.New(state.String())
		}
		if err != nil && len(out.end) > 0 {
			err = fmt.Errorf("%w; the end of its output: %q", err, out.end)
		}
		return errors.Join(err, stopped)
	}
}

// tail keeps the end of what is written to it, by several at once.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p[max(len(p)-maxOutput, 0):]...)
	if over := len(t.end) - maxOutput; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(p), nil
}
