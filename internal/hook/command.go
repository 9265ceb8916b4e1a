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
		out := &tail{}
		err, left := host.RunTree(ctx, proc.Spec{
			Run:  fmt.Sprintf("%s/%d", prefix, number.Add(1)),
			Path: argv[0], Args: argv[1:], Env: environ, NewSession: true,
			PipeStdin: true, PipeStdout: true, PipeStderr: true, PdeathSignal: syscall.SIGKILL,
		}, func(t *proc.Tree) {
			t.Stdin().Write(stdin) //nolint:errcheck // a command need not read it
			t.Stdin().Close()
		}, func(t *proc.Tree) {
			io.Copy(out, t.Stdout()) //nolint:errcheck // what was read is there
		}, func(t *proc.Tree) {
			io.Copy(out, t.Stderr()) //nolint:errcheck // likewise
		})
		if err != nil && len(out.end) > 0 {
			err = fmt.Errorf("%w; the end of its output: %q", err, out.end)
		}
		return errors.Join(err, left)
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
