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

func (m *Main) restartCoreCommand() *cobra.Command {
	var which api.RestartCores
	var asJSON bool
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
				return usage(fmt.Errorf("--core %d: want the number of a core, 1 or more", which.Core))
			}
			return m.restartCores(cmd.Context(), which, asJSON)
		},
	}
	cmd.Flags().IntVar(&which.Core, "core", 0, "replace only core `N` (default all)")
	cmd.Flags().BoolVar(&which.Drain, "drain", false, "let the jobs of each core end first")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as scheduler status does")
	return cmd
}

func (m *Main) restartCores(ctx context.Context, which api.RestartCores, asJSON bool) error {
	dir, err := m.existing()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if which.Drain {
		fmt.Fprintln(m.stderr, "waiting until the jobs of each core have ended; Ctrl-C ends the wait")
	}
	door := client.New(dir.Socket())
	defer door.Close()
	var st api.Status
	err = onceOpen(ctx, dir, func() (err error) {
		st, err = door.RestartCores(ctx, which)
		return err
	})
	switch {
	case errors.Is(err, client.ErrNotRunning):
		return usage(fmt.Errorf("%w: %s", err, dir.Path()), "the cores of `scheduler run` start and end with it")
	case ctx.Err() != nil:
		return &exitError{code: exitInterrupted, err: errors.New("the wait was ended: a replacement that has begun goes on, no further one begins"), hints: []string{"`scheduler status` shows how far the cores are"}}
	case err != nil:
		return failure(err)
	case asJSON:
		return failure(writeJSON(m.stdout, st))
	}
	for i := range st.Cores {
		c := &st.Cores[i]
		if which.Core == 0 || which.Core == c.Index {
			fmt.Fprintf(m.stdout, "core %d is %s (pid %d, version %s)\n", c.Index, c.State, c.PID, terminal.Clean(c.Version))
		}
	}
	return nil
}
