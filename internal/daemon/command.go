package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/agentsched/agentsched/internal/proc"
)

const (
	// maxAnswer is how much of a command's standard output is kept, in bytes.
	maxAnswer = 4 << 10
	// maxSaid is how much of a failed command's output its error shows, in bytes.
	maxSaid = 2 << 10
)

// Run runs a command to its end, with a text on its standard input, and returns the
// beginning of its standard output. When ctx ends, nothing of the command is left.
type Run func(ctx context.Context, argv []string, stdin []byte) (stdout []byte, err error)

// Through returns a Run that starts each command as a process tree of the host, under
// a tag below prefix, with the environment. Whatever the command started is killed
// when it has ended, or its context has.
func Through(host *proc.Host, prefix string, environ []string) Run {
	var number atomic.Int64
	return func(ctx context.Context, argv []string, stdin []byte) ([]byte, error) {
		var out bytes.Buffer
		said := &tail{}
		err, left := host.RunTree(ctx, proc.Spec{
			Run:  fmt.Sprintf("%s/%d", prefix, number.Add(1)),
			Path: argv[0], Args: argv[1:], Env: WithoutSockets(environ), NewSession: true,
			PipeStdin: true, PipeStdout: true, PipeStderr: true, PdeathSignal: syscall.SIGKILL,
		}, func(t *proc.Tree) {
			t.Stdin().Write(stdin) //nolint:errcheck // a command need not read it
			t.Stdin().Close()
		}, func(t *proc.Tree) {
			io.Copy(io.MultiWriter(&out, said), io.LimitReader(t.Stdout(), maxAnswer)) //nolint:errcheck // what was read is there
			io.Copy(said, t.Stdout())                                                  //nolint:errcheck // likewise
		}, func(t *proc.Tree) {
			io.Copy(said, t.Stderr()) //nolint:errcheck // likewise
		})
		if err != nil && len(said.end) > 0 {
			err = fmt.Errorf("%w; the end of its output: %q", err, said.end)
		}
		return out.Bytes(), errors.Join(err, left)
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
	t.end = append(t.end, p[max(len(p)-maxSaid, 0):]...)
	if over := len(t.end) - maxSaid; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(p), nil
}
