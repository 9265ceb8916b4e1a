package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
)

func upgradeCommand(con *console, at *target) *cobra.Command {
	var drain, checkpoint, wait bool
	in := api.Upgrade{}
	cmd := &cobra.Command{
		Use: "upgrade", Short: "Hand the running server over to a new program, losing nothing", Args: cobra.NoArgs,
		Long: `Have the running server replaced by a new program: by default by the file that it was
started from, which may have been replaced meanwhile. It hands over its sockets and its
state directory; no request is refused and no job is lost.

With --checkpoint (the default) running jobs stop, at their next step where their worker
keeps steps, and go on with their agents' sessions afterwards; that counts as no attempt.
With --drain they end first, and no others begin until then, however long that takes.

Exit code: 0 the handover has begun, with --wait: the new program is up; 1 it failed; 2 no
server runs, or the program is not right; 130 the wait was interrupted.`,
		Example: "  scheduler upgrade --wait\n  scheduler upgrade --drain --program /opt/agentsched/bin/scheduler",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.Mode = "checkpoint"
			if drain {
				in.Mode = "drain"
			}
			if in.Program != "" {
				path, err := filepath.Abs(in.Program)
				if err != nil {
					return usage(err)
				}
				if info, err := os.Stat(path); err != nil {
					return usage(fmt.Errorf("--program: %w", err))
				} else if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
					return usage(fmt.Errorf("--program %s is no program: it must be an executable file", path))
				}
				in.Program = path
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return upgrade(ctx, con, at, in, wait)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&checkpoint, "checkpoint", false, "stop running jobs between two steps; they go on afterwards (default)")
	f.BoolVar(&drain, "drain", false, "let running jobs end first")
	f.StringVar(&in.Program, "program", "", "hand over to this `FILE` (default: that of the running server)")
	f.BoolVar(&wait, "wait", false, "return when the new program is up")
	con.jsonFlag(cmd, "print how the scheduler fares as JSON, as scheduler status does")
	cmd.MarkFlagsMutuallyExclusive("checkpoint", "drain")
	return cmd
}

func upgrade(ctx context.Context, con *console, at *target, in api.Upgrade, wait bool) error {
	c, err := at.running()
	if err != nil {
		return err
	}
	defer c.Close()
	before, err := c.Status(ctx)
	if err != nil {
		return notRunning(err)
	}
	if err := c.Upgrade(ctx, in); err != nil {
		return notRunning(err)
	}
	st := before
	if wait {
		fmt.Fprintln(con.stderr, "waiting for the new program; Ctrl-C ends the wait, not the upgrade")
		st, err = successor(ctx, c, &before)
		switch {
		case errors.Is(err, errEnded):
			return &exitError{code: exitFailed, err: err, hints: []string{"scheduler.log in the state directory says how it ended; `scheduler serve` starts one"}}
		case err != nil:
			return &exitError{code: exitInterrupted, err: errors.New("the wait was interrupted: the upgrade goes on"), hints: []string{"`scheduler status` shows how far it is"}}
		}
	}
	switch {
	case con.json:
		return failure(writeJSON(con.stdout, st))
	case wait:
		fmt.Fprintf(con.stdout, "the new program is up (pid %d)\n", st.PID)
	default:
		fmt.Fprintln(con.stdout, "the handover has begun; `scheduler status` shows the new program when it is up")
	}
	return nil
}

// errEnded: the server has ended and nothing has taken its place.
var errEnded = errors.New("the server has ended instead of being replaced")

// endedAfter is how long nobody may listen before the server is taken to have ended. A
// handover keeps the socket; who is restarted by a service manager is away for some seconds.
const endedAfter = 15 * time.Second

// successor waits until another process, or the same one begun anew, answers. Its errors are
// errEnded and those of ctx.
func successor(ctx context.Context, c *client.Client, before *api.Status) (api.Status, error) {
	var away time.Time // since when nobody listens; zero: somebody does
	for {
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return api.Status{}, err
		}
		st, err := c.Status(ctx)
		switch {
		case err == nil && !st.Stopping && (st.PID != before.PID || !st.Started.Equal(before.Started)):
			return st, nil
		case !errors.Is(err, client.ErrNotRunning):
			away = time.Time{}
		case away.IsZero():
			away = time.Now()
		case time.Since(away) >= endedAfter:
			return api.Status{}, errEnded
		}
	}
}
