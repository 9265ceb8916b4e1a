package hook

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"

	"github.com/agentsched/agentsched/internal/proc"
)

// maxOutput is how much of a failed command's output goes into the log, in bytes.
const maxOutput = 2 << 10

// Through returns a Config.Run that starts commands as helpers of the host,
// with the environment. A command that outlives its context is killed with all
// of its session.
func Through(host *proc.Host, environ []string) func(ctx context.Context, argv []string, stdin []byte) error {
	return func(ctx context.Context, argv []string, stdin []byte) error {
		var out tail
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &out, &out
		err := host.Run(ctx, cmd)
		if err != nil && len(out.end) > 0 {
			return fmt.Errorf("%w; the end of its output: %q", err, out.end)
		}
		return err
	}
}

// tail keeps the end of what is written to it.
type tail struct{ end []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.end = append(t.end, p[max(len(p)-maxOutput, 0):]...)
	if over := len(t.end) - maxOutput; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(p), nil
}
