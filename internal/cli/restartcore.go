package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/terminal"
)

func restartCoreCommand(con *console, at *target) *cobra.Command {
	var which api.RestartCores
	var core string
	cmd := &cobra.Command{
		Use: "restart-core", Short: "Replace the running scheduler's cores, e.g. by a new version", Args: cobra.NoArgs,
		Long: `Replace the agentcores of the running scheduler, one after the other, by new processes of
the same program file: after an upgrade, by the new version. A core of a protocol that the
scheduler does not speak is refused.

With --drain each core first ends the jobs that it has, while the others take new ones.
Without it they are stopped and go on, with their agents' sessions, on another core; that
counts as no attempt. The command returns when the new cores are up.

Cores of nodes are replaced one by one, by their names, such as --core node-a/1, or all of a node
with --core node-a/.`,
		Example: "  scheduler restart-core --drain\n  scheduler restart-core --core 2\n  scheduler restart-core --core node-a/1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("core") {
				if err := parseCore(core, &which); err != nil {
					return usage(err)
				}
			}
			return restartCores(cmd.Context(), con, at, which)
		},
	}
	cmd.Flags().StringVar(&core, "core", "", "replace only core `N`, or NODE/N of a node (default all of the scheduler's own host)")
	cmd.Flags().BoolVar(&which.Drain, "drain", false, "let the jobs of each core end first")
	con.jsonFlag(cmd, "print JSON, as scheduler status does")
	return cmd
}

// parseCore reads which core is meant: N, NODE/N, or NODE/ for all of a node.
func parseCore(text string, which *api.RestartCores) (err error) {
	node, number, on := strings.Cut(text, "/")
	if !on {
		node, number = "", text
	}
	if which.Node = node; on && node != "" && number == "" {
		return nil
	}
	if which.Core, err = strconv.Atoi(number); err != nil || which.Core < 1 || on && node == "" {
		return fmt.Errorf("invalid --core %s: use the number of a core, 1 or more, or NODE/NUMBER", text)
	}
	return nil
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
		number := c.Index
		if which.Node != "" {
			number = c.Place
		}
		if c.Node == which.Node && (which.Core == 0 || which.Core == number) {
			fmt.Fprintf(con.stdout, "core %s is %s (pid %d, version %s)\n", c.Name(), c.State, c.PID, terminal.Clean(c.Version))
		}
	}
	return nil
}
