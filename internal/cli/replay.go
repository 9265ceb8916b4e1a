package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func replayCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay JOB", Short: "Show what of a job's work was done anew and what came from the store", Args: cobra.ExactArgs(1),
		Long: `Show the durable steps of a job: what each was computed from, when its result was
stored and by which attempt, and which later attempts took it from the store. Of a
job that belongs to a workflow the workflow's jobs follow: those that had ended
when it was interrupted were not run again.

JOB is a job as for ` + "`scheduler show`" + `, or the id of a batch, or 8 or more of its first
or last characters.`,
		Example: "  scheduler replay crawl\n  scheduler replay crawl --json | jq '.steps[].id'",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, args []string) (api.ReplayReport, error) {
		out, err := p.ReplayOf(ctx, args[0])
		return out, meant(ctx, p, args[0], p.refused(err))
	}, printReplay)
}

func printReplay(w io.Writer, s api.ReplayReport) error {
	if j := s.Job; j != nil {
		fmt.Fprintf(w, "job %s (%s): %s, attempts: %d\n", j.Name, j.ID, j.State, j.Attempts)
		if len(s.Steps) == 0 {
			fmt.Fprintln(w, "no durable steps: its worker has reported none")
		}
	}
	var errs []error
	if len(s.Steps) > 0 {
		errs = append(errs, section(w, "STEP\tINPUTS\tSTORED\tATTEMPT\tUSED\t", func(w io.Writer) {
			for i := range s.Steps {
				r := &s.Steps[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", stepCell(r), inputsCell(r.Inputs), timeCell(r.StoredAt), orDash(r.Attempt > 0, "%d", r.Attempt), usesText(r))
			}
		}))
		printRefusals(w, s.Steps)
	}
	if f := s.Workflow; f != nil {
		fmt.Fprintf(w, "\nworkflow %s, interrupted: %s\n", f.Batch, times(len(f.Interruptions)))
		errs = append(errs, section(w, "JOB\tSTATE\tINPUTS\tCOMPLETED\tATTEMPTS\tRESULT\t", func(w io.Writer) {
			for i := range f.Jobs {
				j := &f.Jobs[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t\n", j.Name, j.State, inputsCell(j.Inputs), timeCell(j.CompletedAt), j.Attempts, keptText(j.Kept))
			}
		}))
	}
	return errors.Join(errs...)
}

// printRefusals says below the table, whose columns they would tear apart, why
// steps were refused.
func printRefusals(w io.Writer, steps []api.Step) {
	gap := "\n"
	for i := range steps {
		for _, u := range steps[i].Uses {
			if u.Why != "" {
				fmt.Fprintf(w, "%sstep %s in attempt %d: %s\n", gap, stepCell(&steps[i]), u.Attempt, terminal.Clean(firstLine(u.Why)))
				gap = ""
			}
		}
	}
}

// stepCell is the step's id as far as it fits a column; the whole one is in the JSON.
func stepCell(s *api.Step) string {
	return dash(clip(terminal.Clean(s.ID), 48))
}

func usesText(s *api.Step) string {
	parts := make([]string, len(s.Uses))
	for i, u := range s.Uses {
		parts[i] = fmt.Sprintf("%d %s", u.Attempt, keptText(u.Kept))
	}
	return strings.Join(parts, ", ")
}

func keptText(k job.Kept) string {
	switch k {
	case "":
		return "-"
	case job.KeptBefore:
		return "from store"
	}
	return string(k)
}

// inputsCell shows the first digits of a hash, and of other text what fits a column.
func inputsCell(inputs string) string {
	if inputs == "" {
		return "-"
	}
	return clip(terminal.Clean(inputs), 24)
}

func clip(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

func timeCell(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
