package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/terminal"
)

func restartCoreCommand(con *console, at *target) *cobra.Command {
	var which api.RestartCores
	cmd := &cobra.Command{
		Use: "restart-core", Short: "Replace the running scheduler's cores, e.g. by a new version", Args: cobra.NoArgs,
		Long: `Replace the agentcores of the running scheduler, one after the other, by new processes of
the same program file: after an upgrade, by the new version. A core of a protocol that the
scheduler does not speak is refused.

With --drain each core first ends the jobs that it has, while the others take new ones.
Without it they are stopped and go on, with their agents' sessions, on another core; that
counts as no attempt. The command returns when the new cores are up.`,
		Example: "  scheduler restart-core --drain\n  scheduler restart-core --core 2",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("core") && which.Core < 1 {
				return usage(fmt.Errorf("invalid --core %d: use the number of a core, 1 or more", which.Core))
			}
			return restartCores(cmd.Context(), con, at, which)
		},
	}
	cmd.Flags().IntVar(&which.Core, "core", 0, "replace only core `N` (default all)")
	cmd.Flags().BoolVar(&which.Drain, "drain", false, "let the jobs of each core end first")
	con.jsonFlag(cmd, "print JSON, as scheduler status does")
	return cmd
}

func restartCores(ctx context.Context, con *console, at *target, which api.RestartCores) error {
	p, err := at.open()
	if err != nil {
		return err
	}
	defer p.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if which.Drain {
		fmt.Fprintln(con.stderr, "waiting until the jobs of each core have ended; Ctrl-C ends the wait")
	}
	st, err := change(ctx, p, func() (api.Status, error) { return p.RestartCores(ctx, which) })
	switch {
	case errors.Is(err, client.ErrNotRunning):
		return hinted(err, client.ErrNotRunning, "the cores of `scheduler run` start and end with it")
	case ctx.Err() != nil:
		return &exitError{code: exitInterrupted, err: errors.New("the wait was ended: a replacement that has begun goes on, no further one begins"), hints: []string{"`scheduler status` shows how far the cores are"}}
	case err != nil:
		return err
	case con.json:
		return failure(writeJSON(con.stdout, st))
	}
	for i := range st.Cores {
		c := &st.Cores[i]
		if which.Core == 0 || which.Core == c.Index {
			fmt.Fprintf(con.stdout, "core %d is %s (pid %d, version %s)\n", c.Index, c.State, c.PID, terminal.Clean(c.Version))
		}
	}
	return nil
}
