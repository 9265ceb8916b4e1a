package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/terminal"
)

func nodesCordonCommand(con *console, at *target) *cobra.Command {
	var in api.CordonNode
	cmd := &cobra.Command{
		Use: "cordon NODE...", Short: "Give nodes no new jobs", Args: cobra.MinimumNArgs(1),
		Long: `Give nodes no new jobs, whichever scheduler leads, until they are uncordoned. What runs there goes on. A node
that has not come yet is cordoned when it comes.`,
		Example: "  scheduler nodes cordon node-a --why \"a new kernel\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			in.By = userName()
			return changeNodes(cmd.Context(), con, at, args, func(ctx context.Context, p *peer, name string) (api.FleetNode, error) {
				return p.CordonNode(ctx, name, in)
			}, func(n *api.FleetNode) string {
				text := fmt.Sprintf("node %s is given no new jobs", n.Name)
				if n.State == api.NodeUnknown && n.Running == 0 {
					return text + "; it has not come yet"
				}
				return fmt.Sprintf("%s; it has %s", text, count(n.Running, "job"))
			})
		},
	}
	cmd.Flags().StringVar(&in.Why, "why", "", "`WHY`, for whoever wonders")
	con.jsonFlag(cmd, "print the nodes as JSON")
	return cmd
}

func nodesUncordonCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "uncordon NODE...", Short: "Give nodes jobs again", Args: cobra.MinimumNArgs(1),
		Long:    "Give nodes jobs again that were cordoned or drained.",
		Example: "  scheduler nodes uncordon node-a",
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeNodes(cmd.Context(), con, at, args, func(ctx context.Context, p *peer, name string) (api.FleetNode, error) {
				return p.UncordonNode(ctx, name)
			}, func(n *api.FleetNode) string { return fmt.Sprintf("node %s is given jobs", n.Name) })
		},
	}
	con.jsonFlag(cmd, "print the nodes as JSON")
	return cmd
}

// changeNodes has do change each node, and says of each what has become of it, or with --json of all together.
func changeNodes(ctx context.Context, con *console, at *target, names []string, do func(context.Context, *peer, string) (api.FleetNode, error), say func(*api.FleetNode) string) error {
	return at.do(func(p *peer) error {
		list := api.FleetNodes{Nodes: []api.FleetNode{}}
		var errs []error
		for _, name := range names {
			n, err := change(ctx, p, func() (api.FleetNode, error) { return do(ctx, p, name) })
			if err = mends(err); err != nil {
				errs = append(errs, err)
				continue
			}
			if list.Nodes = append(list.Nodes, n); !con.json {
				fmt.Fprintln(con.stdout, terminal.Clean(say(&n)))
			}
		}
		if con.json {
			errs = append(errs, writeJSON(con.stdout, list))
		}
		return joined(errs)
	})
}

func nodesDrainCommand(con *console, at *target) *cobra.Command {
	var in api.DrainNode
	var wait bool
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Give a node no new jobs, and empty it", Args: cobra.ExactArgs(1),
		Long: `Cordon a node and empty it, for instance before its host is restarted. --mode says what becomes of what runs
there: wait lets it end; checkpoint stops what keeps steps at the boundary of its next one, and lets the
rest end; stop stops all of it in stages. Jobs that are stopped go on elsewhere, with their sessions where
these can be carried over, and no attempt of theirs counts.

--wait returns when the node is empty. ` + "`scheduler nodes uncordon`" + ` gives it jobs again.`,
		Example: "  scheduler nodes drain node-a --wait\n  scheduler nodes drain node-a --mode checkpoint --why \"a new kernel\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(api.DrainModes(), in.Mode) {
				return usage(fmt.Errorf("--mode is %q, want one of %s", in.Mode, strings.Join(api.DrainModes(), ", ")))
			}
			in.By = userName()
			return at.do(func(p *peer) error {
				n, err := change(cmd.Context(), p, func() (api.FleetNode, error) { return p.DrainNode(cmd.Context(), args[0], in) })
				if err = mends(err); err != nil {
					return err
				}
				if wait {
					if n, err = emptied(cmd.Context(), con, p, n); err != nil {
						return err
					}
				}
				if con.json {
					return failure(writeJSON(con.stdout, n))
				}
				_, err = fmt.Fprintf(con.stdout, "node %s is given no new jobs; it has %s\n", terminal.Clean(n.Name), count(n.Running, "job"))
				return failure(err)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Mode, "mode", api.DrainWait, "what becomes of what runs there: wait, checkpoint or stop")
	f.StringVar(&in.Why, "why", "", "`WHY`, for whoever wonders")
	f.BoolVar(&wait, "wait", false, "return when the node has no job any more")
	con.jsonFlag(cmd, "print the node as JSON")
	return cmd
}

// emptied waits until a node has no job.
func emptied(ctx context.Context, con *console, p *peer, n api.FleetNode) (api.FleetNode, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p.BePatient()
	if n.Running > 0 {
		fmt.Fprintf(con.stderr, "waiting for %s; Ctrl-C ends the wait, and nothing else\n", count(n.Running, "job"))
	}
	for n.Running > 0 {
		if err := pause(ctx, p.Pace()); err != nil {
			return n, &exitError{code: exitInterrupted, err: errors.New("the wait was ended: the node is still being drained"), hints: []string{"`scheduler nodes show " + n.Name + "` tells how far it is"}}
		}
		var err error
		if n, err = ask(ctx, p, func() (api.FleetNode, error) { return p.Node(ctx, n.Name) }); err != nil {
			return n, err
		}
	}
	return n, nil
}

func nodesRmCommand(con *console, at *target) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "rm NODE", Short: "Say that nothing of a node lives: its jobs go on elsewhere at once", Args: cobra.ExactArgs(1),
		Long: `Forget a node, and its cordon. You say with it that none of its runs lives, for instance since its host was
switched off: its jobs go on elsewhere at once, and not only when the node counts as lost. If a run does live
there, it and the next one may do the same work twice.

A node that is connected is refused; --force closes its connection first. A node that comes again is a
new one: ` + "`scheduler token revoke`" + ` keeps it away.`,
		Example: "  scheduler nodes rm node-a",
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.do(func(p *peer) error {
				r, err := change(cmd.Context(), p, func() (api.RemovedNode, error) { return p.RemoveNode(cmd.Context(), args[0], force) })
				if err = mends(err); err != nil {
					return err
				}
				if con.json {
					return failure(writeJSON(con.stdout, r))
				}
				_, err = fmt.Fprintf(con.stdout, "node %s is forgotten; %s of it may go on elsewhere\n", terminal.Clean(r.Name), count(r.Jobs, "job"))
				return failure(err)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also while it is connected: its connection is closed")
	con.jsonFlag(cmd, "print what was removed as JSON")
	return cmd
}
