package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
)

const (
	// checkTime is how long a new program may take to say its version.
	checkTime = 5 * time.Second
	// maxAnswer bounds what is read of its answer, in bytes.
	maxAnswer = 4 << 10
	// programName begins the answer of the right one.
	programName = "scheduler"
)

// Run runs a command to its end and returns its standard output.
type Run func(ctx context.Context, argv []string) (stdout []byte, err error)

// Through returns a Run that starts each command as a process tree of the host,
// under a tag below prefix, with the environment. Whatever the command started
// is killed when it has ended.
func Through(host *proc.Host, prefix string, environ []string) Run {
	var number atomic.Int64
	return func(ctx context.Context, argv []string) ([]byte, error) {
		var out bytes.Buffer
		err, left := host.RunTree(ctx, proc.Spec{
			Run:  fmt.Sprintf("%s/%d", prefix, number.Add(1)),
			Path: argv[0], Args: argv[1:], Env: WithoutSockets(environ), NewSession: true,
			PipeStdout: true, PdeathSignal: syscall.SIGKILL,
		}, func(t *proc.Tree) {
			io.Copy(&out, io.LimitReader(t.Stdout(), maxAnswer)) //nolint:errcheck // what was read is there
			io.Copy(io.Discard, t.Stdout())                      //nolint:errcheck // lets it write on
		})
		return out.Bytes(), errors.Join(err, left)
	}
}

// Program returns the file that the name, by which this program was started, as
// of os.Args, stands for now: after an upgrade that is the new one. Where it
// stands for none, it is the file that this program was started from.
func Program(arg0 string) (string, error) {
	path, err := exec.LookPath(arg0)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		return path, nil
	}
	self, selfErr := os.Executable()
	if selfErr != nil {
		return "", fmt.Errorf("find the program to go on with: %w", errors.Join(err, selfErr))
	}
	return self, nil
}

// Check tells whether the program at path can take this one's place, before
// anything is stopped for it: it must be executable and answer `version` as a
// scheduler does, within five seconds. It returns the version.
func Check(ctx context.Context, path string, run Run) (version string, err error) {
	file, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("check the new program %s: %w", path, errors.Unwrap(err))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, fmt.Errorf("no answer within %s", checkTime))
	defer cancel()
	answer, err := run(ctx, []string{file, "version"})
	if err != nil {
		return "", fmt.Errorf("check the new program %s: run `version`: %w", path, err)
	}
	words := strings.Fields(string(answer))
	if len(words) < 2 || words[0] != programName {
		return "", fmt.Errorf("check the new program %s: it is no scheduler: `version` answered %.80q, want %q", path, answer, programName+" VERSION")
	}
	return words[1], nil
}
