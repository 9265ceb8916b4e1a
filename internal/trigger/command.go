package trigger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/agentsched/agentsched/internal/proc"
)

// maxSaid is how much of a failed command's standard error is shown, in bytes.
const maxSaid = 1 << 10

// Through returns a Config.Run that starts each command as a process tree of the
// host, under a tag below prefix, with the environment. When the shell has
// ended, or its context has, whatever it started is killed.
func Through(host *proc.Host, prefix string, environ []string) func(ctx context.Context, command, dir string, stdout io.Writer) error {
	var number atomic.Int64
	return func(ctx context.Context, command, dir string, stdout io.Writer) error {
		var said strings.Builder
		err, left := host.RunTree(ctx, proc.Spec{
			Run:  fmt.Sprintf("%s/%d", prefix, number.Add(1)),
			Path: "sh", Args: []string{"-c", command}, Env: environ, Dir: dir, NewSession: true,
			PipeStdout: true, PipeStderr: true, PdeathSignal: syscall.SIGKILL,
		}, func(t *proc.Tree) {
			io.Copy(stdout, t.Stdout()) //nolint:errcheck // what was read is there
		}, func(t *proc.Tree) {
			io.CopyN(&said, t.Stderr(), maxSaid) //nolint:errcheck // likewise
			io.Copy(io.Discard, t.Stderr())      //nolint:errcheck // so that it can go on writing
		})
		if err != nil && said.Len() > 0 {
			err = fmt.Errorf("%w; it said: %q", err, said.String())
		}
		return errors.Join(err, left)
	}
}

// runCommand runs the command until ctx ends.
func (s *source) runCommand(ctx context.Context) {
	c := s.settings.Command
	for {
		s.runOnce(ctx, c)
		s.show(func(st *state) { st.next = s.runner.cfg.Now().Add(c.Every.Std()).UTC() })
		if sleep(ctx, c.Every.Std()) != nil {
			return
		}
	}
}

// runOnce runs the command and fires if its end says so. What could not be
// submitted is not written down, so the next run fires.
func (s *source) runOnce(ctx context.Context, c *Command) {
	limit := c.Timeout
	if limit == 0 {
		limit = DefaultTimeout
	}
	within, cancel := context.WithTimeoutCause(ctx, limit.Std(), fmt.Errorf("no end within the time limit of %s", limit))
	defer cancel()
	out := &output{sum: sha256.New()}
	err := s.runner.cfg.Run(within, c.Run, c.Dir, out)
	if err != nil {
		s.failed(ctx, fmt.Errorf("run the command: %w", err))
		return
	}
	sum, before := hex.EncodeToString(out.sum.Sum(nil)), s.record()
	switch {
	case c.When == OnOutput && !out.visible:
	case (c.When == "" || c.When == OnChange) && before.Output == "":
		s.note(func(r *record) { r.Output = sum })
	case (c.When == "" || c.When == OnChange) && before.Output == sum:
	default:
		at := s.runner.cfg.Now().UTC().Round(0)
		// The count makes it another event when an output comes again.
		f := Firing{ID: fmt.Sprintf("%s#%d-%s", s.name, before.Fired+before.Skipped, sum[:16]), At: at, Event: eventText(string(out.head))}
		s.fire(ctx, f, func(r *record) { r.Output = sum }) //nolint:errcheck // shown, and tried again by the next run
		return
	}
	s.show(func(st *state) { st.err = "" })
}

// output keeps the hash and the beginning of what is written to it.
type output struct {
	sum     hash.Hash
	head    []byte // a little more than fits into an event, so that the cut shows
	visible bool   // something other than ASCII white space
}

func (o *output) Write(p []byte) (int, error) {
	o.sum.Write(p)
	o.head = append(o.head, p[:min(len(p), MaxEvent+utfMax-len(o.head))]...)
	o.visible = o.visible || len(strings.Trim(string(p), " \t\r\n")) > 0
	return len(p), nil
}

// utfMax is the length of the longest character in UTF-8.
const utfMax = 4
