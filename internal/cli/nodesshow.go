package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/terminal"
)

func nodesCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "nodes", Short: "List the hosts that run jobs for the scheduler, and command them",
		Long: `List and command nodes: the hosts on which ` + "`scheduler node`" + ` runs jobs for the scheduler. A node is
called as its token is.`,
		Args:    cobra.NoArgs,
		Example: "  scheduler nodes ls\n  scheduler nodes drain node-a --wait",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(nodesLsCommand(at), nodesShowCommand(at), nodesCordonCommand(con, at), nodesUncordonCommand(con, at), nodesDrainCommand(con, at), nodesRmCommand(con, at))
	return cmd
}

func nodesLsCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Short: "List the nodes", Args: cobra.NoArgs,
		Long: `List the nodes that have come since this scheduler leads, and those that are cordoned, isolated or have
jobs of an earlier one. STATE is connected; cut off while a node is not heard, and its runs go on; lost when it was not
heard for so long that its jobs went on elsewhere; unknown if it has not come.`,
		Example: "  scheduler nodes ls\n  scheduler nodes ls --json | jq -r '.nodes[] | select(.state != \"connected\") | .name'",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (api.FleetNodes, error) {
		list, err := p.Nodes(ctx)
		return api.FleetNodes{Nodes: list}, err
	}, func(w io.Writer, v api.FleetNodes) error { return printNodes(w, v.Nodes, time.Now()) })
}

func nodesShowCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NODE", Short: "Show a node: what it offers, its workers and its cores", Args: cobra.ExactArgs(1),
		Long:    "Show what a node offers, which of its workers are ready, how its cores fare, and why it is cordoned or isolated.",
		Example: "  scheduler nodes show node-a",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, args []string) (api.FleetNode, error) {
		return p.Node(ctx, args[0])
	}, func(w io.Writer, n api.FleetNode) error { return showNode(w, &n, time.Now()) })
}

func printNodes(w io.Writer, list []api.FleetNode, now time.Time) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "there is no node; `scheduler node --help` tells how a host becomes one")
		return err
	}
	return table(w, "NODE\tSTATE\tRUNS\tSLOTS\tOS\tCPUS\tMEMORY\tWORKERS\tLABELS\tSEEN\tVERSION\tNOTE", func(w io.Writer) {
		for i := range list {
			n := &list[i]
			var system string
			if n.OS != "" {
				system = n.OS + "/" + n.Arch
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.State, n.Running, n.Slots, dash(system), orDash(n.CPUs > 0, "%d", n.CPUs),
				orDash(n.Memory > 0, "%s", sizeText(n.Memory)), dash(readyKinds(n)), dash(labelsText(n.Labels)), ago(n.Seen, now), dash(n.Version), terminal.Clean(nodeNote(n)))
		}
	})
}

// readyKinds are the kinds of worker that a node has ready.
func readyKinds(n *api.FleetNode) string {
	var kinds []string
	for i := range n.Workers {
		if n.Workers[i].Ready {
			kinds = append(kinds, string(n.Workers[i].Kind))
		}
	}
	return terminal.Clean(strings.Join(kinds, ","))
}

// labelsText are labels as they are given to `scheduler node`.
func labelsText(labels map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if labels[name] == "" {
			list = append(list, name)
		} else {
			list = append(list, name+"="+labels[name])
		}
	}
	return terminal.Clean(strings.Join(list, ","))
}

// nodeNote says what is out of the ordinary with a node.
func nodeNote(n *api.FleetNode) string {
	var notes []string
	if c := n.Cordon; c != nil {
		note := "cordoned"
		if c.By != "" {
			note += " by " + c.By
		}
		if c.Why != "" {
			note += ": " + firstLine(c.Why)
		}
		notes = append(notes, note)
	}
	if i := n.Isolation; i != nil {
		notes = append(notes, "isolated: "+firstLine(i.Message))
	}
	if len(n.IsolatedParts) > 0 {
		var parts []string
		for i := range n.IsolatedParts {
			parts = append(parts, partOf(&n.IsolatedParts[i]))
		}
		notes = append(notes, "isolated on it: "+strings.Join(parts, ", "))
	}
	if n.Lost > 0 {
		notes = append(notes, "lost "+count(n.Lost, "time"))
	}
	return strings.Join(notes, "; ")
}

// partOf is what an isolation is about on its node, e.g. worker:codex.
func partOf(i *api.Isolation) string {
	_, what, _ := isolation.Scope(i.Scope).Host()
	return string(what)
}

func showNode(w io.Writer, n *api.FleetNode, now time.Time) error {
	line := func(name, format string, args ...any) {
		if text := terminal.Clean(fmt.Sprintf(format, args...)); text != "" {
			fmt.Fprintf(w, "%-12s %s\n", name+":", text)
		}
	}
	line("node", "%s", n.Name)
	line("state", "%s", n.State)
	if c := n.Cordon; c != nil {
		line("cordoned", "on %s by %s %s", c.Since.Local().Format(time.DateTime), dash(c.By), c.Why)
	}
	isolated := func(what string, i *api.Isolation) {
		until := "`scheduler resume " + quoteScope(i.Scope) + "`"
		if !i.Until.IsZero() {
			until = clock(i.Until, now) + ", or " + until
		}
		line("isolated", "%ssince %s until %s: %s", what, clock(i.Since, now), until, i.Message)
	}
	if n.Isolation != nil {
		isolated("", n.Isolation)
	}
	for i := range n.IsolatedParts {
		isolated(partOf(&n.IsolatedParts[i])+" ", &n.IsolatedParts[i])
	}
	line("jobs", "%d of %d", n.Running, n.Slots)
	line("host", "%s", n.Host)
	if n.OS != "" {
		line("system", "%s/%s, %s, memory for jobs %s", n.OS, n.Arch, count(n.CPUs, "CPU"), orDash(n.Memory > 0, "%s", sizeText(n.Memory)))
	}
	line("labels", "%s", labelsText(n.Labels))
	line("sandbox", "%s", n.Sandbox)
	line("version", "%s", n.Version)
	if !n.Since.IsZero() {
		line("since", "%s", clock(n.Since, now))
	}
	if !n.Seen.IsZero() {
		line("seen", "%s ago", ago(n.Seen, now))
	}
	if n.RoundTrip > 0 {
		line("round trip", "%s", n.RoundTrip.Std().Round(10*time.Microsecond))
	}
	if n.Lost > 0 {
		line("lost", "%s", count(n.Lost, "time"))
	}
	if len(n.Workers) > 0 {
		err := section(w, "WORKER\tREADY\tVERSION\tNOTE", func(w io.Writer) {
			for i := range n.Workers {
				k := &n.Workers[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", terminal.Clean(string(k.Kind)), map[bool]string{true: "yes", false: "no"}[k.Ready], dash(terminal.Clean(k.Version)), terminal.Clean(firstLine(k.Why)))
			}
		})
		if err != nil {
			return err
		}
	}
	return printCores(w, n.Cores, now)
}
