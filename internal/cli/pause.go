package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/terminal"
)

func pauseCommand(con *console, at *target) *cobra.Command {
	var span, reason string
	cmd := &cobra.Command{
		Use: "pause [SCOPE]", Short: "Stop starting jobs: all, or those of a worker, a folder or a trigger", Args: cobra.MaximumNArgs(1),
		Long: `Let no job of a scope begin until the time is over or somebody resumes it, over restarts of
the scheduler too. What runs goes on to its end. SCOPE is one of

  global            everything (the default)
  worker:KIND       a kind of worker, e.g. worker:codex; worker:codex@ann for one tenant
  workspace:PATH    a folder, with all below and above it
  node:NAME/...     a worker or a folder on one node, e.g. node:node-a/worker:codex
  trigger:NAME      what a trigger submits

A scheduler must be running. ` + "`scheduler resume SCOPE`" + ` undoes it, ` + "`scheduler status`" + ` shows it.`,
		Example: "  scheduler pause\n  scheduler pause worker:codex --for 1h --reason \"new credentials\"\n  scheduler resume global",
		RunE: func(cmd *cobra.Command, args []string) error {
			p := api.Pause{Scope: string(isolation.Global), Reason: reason}
			if len(args) == 1 {
				scope, err := readScope(args[0])
				if err != nil {
					return usage(err)
				}
				p.Scope = scope
			}
			if cmd.Flags().Changed("for") {
				var err error
				if p.For, err = spanFlag("for", span); err != nil {
					return err
				}
			}
			return at.do(func(s *peer) error {
				i, err := change(cmd.Context(), s, func() (api.Isolation, error) { return s.Pause(cmd.Context(), p) })
				if err != nil {
					return hinted(err, client.ErrNotRunning, "nothing begins while none runs")
				}
				until := fmt.Sprintf("until `scheduler resume %s`", quoteScope(i.Scope))
				if !i.Until.IsZero() {
					until = fmt.Sprintf("until %s, or `scheduler resume %s`", clock(i.Until, time.Now()), quoteScope(i.Scope))
				}
				return con.print(i, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s is paused %s; what runs goes on\n", terminal.Clean(string(i.Scope)), until)
					return err
				})
			})
		},
	}
	cmd.Flags().StringVar(&span, "for", "", "for so `LONG`, e.g. 15m, 24h or 7d (default: until it is resumed)")
	cmd.Flags().StringVar(&reason, "reason", "", "why: shown by scheduler status")
	con.jsonFlag(cmd, "print the isolation as JSON")
	return cmd
}
