package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/terminal"
)

func fleetCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "fleet", Short: "List the schedulers that share the queue, and tell which one leads", Args: cobra.NoArgs,
		Long: `List the schedulers that work on one queue: which one leads, which stand by, for how long,
and when each was heard of last. Below it says why the lead came to who has it; --json also
has who led before. CONFIG tells whether a scheduler has the configuration of the leader:
one that does not would decide otherwise, if the lead came to it.

Any of them answers this, also while nobody leads. A scheduler that has its queue for
itself is a fleet of one.`,
		Example: "  scheduler fleet\n  scheduler fleet --json | jq -r '.history[] | .why'",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (api.Fleet, error) {
		return p.Fleet(ctx)
	}, func(w io.Writer, f api.Fleet) error {
		if len(f.Members) == 0 {
			fmt.Fprintln(con.stderr, client.ErrNotRunning)
			return nil
		}
		return printFleet(w, &f, time.Now())
	})
}

// shownInstance is how much of an instance's id is shown: its end, as with jobs, since
// ids of a day begin alike.
const shownInstance = 8

func printFleet(w io.Writer, f *api.Fleet, now time.Time) error {
	leader := slices.IndexFunc(f.Members, func(m api.FleetMember) bool { return m.Role == api.FleetLeader })
	err := table(w, "SCHEDULER\tHOST\tROLE\tSINCE\tSEEN\tVERSION\tCONFIG\tADDRESS", func(w io.Writer) {
		for i := range f.Members {
			m := &f.Members[i]
			config := "-"
			switch {
			case m.Config == "":
			case leader < 0 || f.Members[leader].Config == "":
				config = m.Config
			case m.Config == f.Members[leader].Config:
				config = "same"
			default:
				config = "differs"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shortInstance(m.Instance), dash(m.Host), dash(m.Role), ago(m.Since, now), ago(m.Seen, now), dash(m.Version), terminal.Clean(config), dash(m.Address))
		}
	})
	if err != nil {
		return err
	}
	if f.Leader == nil {
		_, err = fmt.Fprintln(w, "\nnobody leads: no job begins, and nothing can be changed")
		return err
	}
	fmt.Fprintln(w)
	return printLeader(w, f.Leader, now)
}

// printLeader says who leads, since when, and why.
func printLeader(w io.Writer, t *api.FleetTerm, now time.Time) error {
	why := ""
	if t.Why != "" {
		why = ": " + terminal.Clean(firstLine(t.Why))
	}
	_, err := fmt.Fprintf(w, "%s%s leads since %s%s\n", shortInstance(t.Instance), whereOf(t.Host), clock(t.Since, now), why)
	return err
}

func shortInstance(id string) string {
	id = terminal.Clean(id)
	return dash(id[max(0, len(id)-shownInstance):])
}

func whereOf(host string) string {
	if host == "" {
		return ""
	}
	return " on " + terminal.Clean(host)
}
