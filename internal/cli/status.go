package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func statusCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show the cores, what is isolated, and the metrics", Args: cobra.NoArgs,
		Long: `Show how the running scheduler fares: its cores, what is isolated and until when, open
circuit breakers, the jobs that could run and wait, and the cores' metrics.

Without a running scheduler, show what it would leave out of use; with --json,
"pid" is then 0.`,
		Example: "  scheduler status\n  scheduler status --json | jq '.cores[].stage'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.do(func(s *peer) error {
				st, err := s.Status(cmd.Context())
				switch {
				case err != nil:
					return err
				case st.PID == 0:
					return failure(printIdle(con, s.Name(), &st))
				case con.json:
					return failure(writeJSON(con.stdout, st))
				}
				if f, err := s.Fleet(cmd.Context()); err == nil && f.Leader != nil && f.Leader.Epoch > 0 {
					if err := printLeader(con.out(), f.Leader, time.Now()); err != nil { // who is asked below
						return failure(err)
					}
				}
				return failure(printStatus(con.out(), &st, time.Now()))
			})
		},
	}
	return cmd
}

// printIdle shows what is isolated while no scheduler runs.
func printIdle(con *console, name string, st *api.Status) error {
	if con.json {
		return writeJSON(con.stdout, struct {
			PID        int             `json:"pid"`
			Cores      []api.Core      `json:"cores"`
			Isolations []api.Isolation `json:"isolations"`
		}{0, []api.Core{}, append([]api.Isolation{}, st.Isolations...)})
	}
	fmt.Fprintf(con.stdout, "%v: %s\n", client.ErrNotRunning, name)
	return printIsolations(con.out(), st.Isolations, time.Now())
}

// printStatus writes a section for each part that there is something to say of.
func printStatus(w io.Writer, st *api.Status, now time.Time) error {
	stopping, permits := "", ""
	for _, t := range st.FailedTeams {
		fmt.Fprintf(w, "team %s has failed on %s: %s\n", t.Team, t.At.Local().Format(time.DateTime), terminal.Clean(t.Why))
	}
	if st.Stopping {
		stopping = ", about to end"
	}
	if st.PermitValidity > 0 {
		permits = fmt.Sprintf("; permits lapse %s after a heartbeat", st.PermitValidity)
	}
	fmt.Fprintf(w, "scheduler: pid %d, up %s%s; jobs given to cores: %d%s\n", st.PID, ago(st.Started, now), stopping, st.Running, permits)
	return errors.Join(
		printCores(w, st.Cores, now), printIsolations(w, append(slices.Clone(st.Isolations), isolatedCores(st, now)...), now), printCircuits(w, st.Circuits, now),
		printReady(w, st.Ready, now), printShares(w, st), printMetrics(w, st.Cores),
	)
}

func printCores(w io.Writer, cores []api.Core, now time.Time) error {
	if len(cores) == 0 {
		fmt.Fprintln(w, "\nno core is up")
		return nil
	}
	return section(w, "CORE\tPID\tSTATE\tSINCE\tRUNS\tRSS\tCPU\tHEARTBEAT\tRESTARTS\tNOTE", func(w io.Writer) {
		for i := range cores {
			c := &cores[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", c.Name(), orDash(c.PID > 0, "%d", c.PID), c.State, ago(c.Since, now), c.Inflight,
				orDash(c.RSSBytes > 0, "%s", sizeText(c.RSSBytes)), orDash(c.PID > 0 && c.CPURatio >= 0, "%.0f%%", 100*c.CPURatio),
				orDash(c.Heartbeat > 0, "%s", c.Heartbeat.Round(10*time.Microsecond)), c.Restarts, coreNote(c, now))
		}
	})
}

// coreNote says what is out of the ordinary with a core.
func coreNote(c *api.Core, now time.Time) string {
	note := ""
	add := func(format string, args ...any) {
		if note != "" {
			note += "; "
		}
		note += fmt.Sprintf(format, args...)
	}
	if c.IsolatedUntil.After(now) {
		add("isolated until %s, or `scheduler resume core:%d`", clock(c.IsolatedUntil, now), c.Index)
	}
	if c.Cause != "" {
		add("%s", firstLine(c.Cause))
	}
	if c.Stage != "" {
		add("stage %s", c.Stage)
	}
	if c.Concurrency > 0 {
		add("at most %d runs at once", c.Concurrency)
	}
	if c.Evidence != "" {
		add("%s", firstLine(c.Evidence))
	}
	return terminal.Clean(note)
}

// isolatedCores returns the cores that are out of use, as isolations, but for those of nodes that are isolated as
// a whole.
func isolatedCores(st *api.Status, now time.Time) []api.Isolation {
	var list []api.Isolation
	for i := range st.Cores {
		c := &st.Cores[i]
		if !c.IsolatedUntil.After(now) {
			continue
		}
		x := api.Isolation{
			Scope: fmt.Sprintf("core:%d", c.Index), Cause: string(isolation.CauseCoreCrashes), Message: c.Cause, Since: c.Since, Until: c.IsolatedUntil,
		}
		if c.Node != "" {
			x.Scope, x.Message = string(isolation.NodeScope(c.Node)), fmt.Sprintf("agentcore %d alone: %s", c.Place, c.Cause)
			if slices.ContainsFunc(st.Isolations, func(i api.Isolation) bool { return i.Scope == x.Scope }) {
				continue
			}
		}
		list = append(list, x)
	}
	return list
}

func printIsolations(w io.Writer, list []api.Isolation, now time.Time) error {
	if len(list) == 0 {
		fmt.Fprintln(w, "\nnothing is isolated")
		return nil
	}
	return section(w, "ISOLATED\tCAUSE\tSINCE\tUNTIL\tWHY", func(w io.Writer) {
		for _, i := range list {
			until := fmt.Sprintf("`scheduler resume %s`", quoteScope(i.Scope))
			if !i.Until.IsZero() {
				until = clock(i.Until, now)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", terminal.Clean(i.Scope), i.Cause, clock(i.Since, now), until, terminal.Clean(firstLine(i.Message)))
		}
	})
}

func printCircuits(w io.Writer, all []api.Circuit, now time.Time) error {
	var open []api.Circuit
	for _, c := range all {
		if c.State != "closed" {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		fmt.Fprintln(w, "\nno circuit is open")
		return nil
	}
	return section(w, "CIRCUIT\tSTATE\tUNTIL\tFAILED\tSLOW\tCAUSE", func(w io.Writer) {
		for _, c := range open {
			name := string(c.Worker)
			if c.Model != "" {
				name += ":" + c.Model
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d of %d\t%d\t%s\n", terminal.Clean(name), c.State, orDash(!c.OpenUntil.IsZero(), "%s", clock(c.OpenUntil, now)),
				c.Failures, c.Requests, c.Slow, terminal.Clean(firstLine(c.Cause)))
		}
	})
}

func printReady(w io.Writer, ready map[job.Class]api.ClassReady, now time.Time) error {
	return section(w, "READY\tJOBS\tOLDEST", func(w io.Writer) {
		for _, class := range job.Classes() {
			r := ready[class]
			fmt.Fprintf(w, "%s\t%d\t%s\n", class, r.Depth, orDash(r.Depth > 0, "%s", ago(r.Oldest, now)))
		}
	})
}
