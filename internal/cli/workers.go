package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/terminal"
)

func workersCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "workers", Short: "List the kinds of workers, what they run and how their breakers stand", Args: cobra.NoArgs,
		Long: `List the kinds of workers that a job may name: the program that each runs, how many runs
it has of how many it may have at once, and whether its breaker or an isolation keeps jobs
away from it. Without a running scheduler they are those of the configuration, and nothing
runs. ` + "`scheduler doctor`" + ` tells versions, and how to get what is missing.`,
		Example: "  scheduler workers\n  scheduler workers --json | jq -r '.workers[] | select(.problem) | .kind'",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (api.Workers, error) {
		list, err := p.Workers(ctx)
		return api.Workers{Workers: list}, err
	}, func(w io.Writer, v api.Workers) error { return printWorkers(w, v.Workers, time.Now()) })
}

func printWorkers(w io.Writer, list []api.Worker, now time.Time) error {
	return table(w, "WORKER\tADAPTER\tRUNS\tAT MOST\tBREAKER\tPROGRAM\tNOTE", func(w io.Writer) {
		for i := range list {
			k := &list[i]
			state, note := breakerOf(k, now)
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", dash(string(k.Kind)), dash(k.Adapter), k.Running, orDash(k.Max > 0, "%d", k.Max), state, dash(k.Program), terminal.Clean(note))
		}
	})
}

// breakerOf is the worst that keeps jobs away from a worker, and why.
func breakerOf(k *api.Worker, now time.Time) (state, note string) {
	if len(k.Isolations) > 0 {
		i := &k.Isolations[0]
		note = firstLine(i.Message)
		if i.Until.IsZero() {
			return "isolated", fmt.Sprintf("%s; `scheduler resume %s`", note, quoteScope(i.Scope))
		}
		return "isolated", fmt.Sprintf("%s; until %s", note, clock(i.Until, now))
	}
	if k.Problem != "" {
		return "-", firstLine(k.Problem)
	}
	state = "closed"
	for i := range k.Circuits {
		c := &k.Circuits[i]
		if c.State == "closed" || state == "open" {
			continue
		}
		state, note = c.State, fmt.Sprintf("%d of %d failed: %s", c.Failures, c.Requests, firstLine(c.Cause))
		if c.Model != "" {
			note = c.Model + ": " + note
		}
		if !c.OpenUntil.IsZero() {
			note = fmt.Sprintf("until %s; %s", clock(c.OpenUntil, now), note)
		}
	}
	return state, note
}
