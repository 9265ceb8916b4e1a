package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/terminal"
)

func approvalsCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "approvals", Short: "Show what waits for a person",
		Long: `Show the jobs whose work waits for a person, because of their oversight: docs/oversight.md. They hold
no worker, and go on waiting whether a scheduler runs or not. And show what agents ask while they
work: docs/conversation.md. A run that asks keeps its worker, for as long as its job says.`,
		Args:    cobra.NoArgs,
		Example: "  scheduler approvals ls\n  scheduler approvals show fix-login",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(approvalsLsCommand(at), approvalsShowCommand(at))
	return cmd
}

func approvalsLsCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Short: "List what waits for a person", Args: cobra.NoArgs,
		Long: `List the jobs whose work waits for a person, since when, why, and what counts as the answer
if none comes in time; and the questions of agents, which ` + "`scheduler answer`" + ` answers.`,
		Example: "  scheduler approvals ls\n  scheduler approvals ls --json | jq -r '.jobs[].id'",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (api.Inbox, error) {
		return p.Inbox(ctx, "")
	}, func(w io.Writer, in api.Inbox) error {
		now := time.Now()
		if len(in.Questions) == 0 {
			return printApprovals(w, in.Jobs, now)
		}
		if len(in.Jobs) > 0 {
			if err := printApprovals(w, in.Jobs, now); err != nil {
				return err
			}
			fmt.Fprintln(w)
		}
		return printQuestions(w, in.Questions, now)
	})
}

func printApprovals(w io.Writer, list []api.Job, now time.Time) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "nothing waits for a person")
		return err
	}
	return table(w, "JOB\tID\tTENANT\tASKED\tUNTIL\tREJECTED\tWHY", func(w io.Writer) {
		for i := range list {
			e, a := &list[i], list[i].Approval
			until := "-"
			if a.Until != nil {
				until = fmt.Sprintf("%s, then %s", clock(*a.Until, now), a.Default)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", e.Spec.Name, e.ID.Short(), e.Spec.Tenant, clock(a.AskedAt, now), until, e.Rejections, dash(terminal.Clean(a.Why)))
		}
	})
}

func approvalsShowCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show JOB", Short: "Show what a person is to look at", Args: cobra.ExactArgs(1),
		Long: `Show what a job has made that waits for a person: its answer, what it has changed, why it
asks, and how to answer. Of one that was answered, by whom and how.`,
		Example: "  scheduler approvals show fix-login",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, args []string) (api.JobDetail, error) {
		j, err := p.Job(ctx, args[0])
		if err == nil && j.Job.Approval == nil {
			err = usage(fmt.Errorf("job %s (%s) is %s and was never asked about", j.Job.ID, j.Job.Spec.Name, stateWord(&j.Job)), "`scheduler approvals ls` lists what waits")
		}
		return j, err
	}, printApproval)
}

func printApproval(w io.Writer, j api.JobDetail) error {
	e, a, attempts := &j.Job, j.Job.Approval, j.Attempts
	fmt.Fprintf(w, "%s (%s) asks about attempt %d: %s\n", e.Spec.Name, e.ID, a.Attempt, terminal.Clean(a.Why))
	switch {
	case a.DecidedAt != nil:
		word := "rejected"
		if a.Approved {
			word = "approved"
		}
		fmt.Fprintf(w, "%s by %s on %s", word, dash(terminal.Clean(a.By)), a.DecidedAt.Local().Format(time.DateTime))
		if a.Comment != "" {
			fmt.Fprintf(w, ": %s", terminal.Clean(a.Comment))
		}
		fmt.Fprintln(w)
	case a.Until != nil:
		fmt.Fprintf(w, "without an answer by %s it counts as: %s\n", a.Until.Local().Format(time.DateTime), a.Default)
	}
	for i := range attempts {
		o := attempts[i].Outcome
		if attempts[i].Number != a.Attempt || o == nil {
			continue
		}
		if o.Class != "" {
			fmt.Fprintf(w, "\nit failed: %s: %s\n", o.Class, terminal.Clean(o.Message))
		}
		if o.Answer != "" {
			fmt.Fprintf(w, "\n%s\n", terminal.Clean(o.Answer))
		}
		if o.DiffStat != "" {
			fmt.Fprintf(w, "\n%s; `scheduler diff %s` shows them\n", o.DiffStat, e.Spec.Name)
		}
	}
	if a.DecidedAt == nil {
		fmt.Fprintf(w, "\nscheduler approve %s\nscheduler reject %s -m \"what is to be done better\"\n", e.Spec.Name, e.Spec.Name)
	}
	return nil
}

func approveCommand(con *console, at *target) *cobra.Command {
	return answerCommand(con, at, "approve JOB...", "Approve what a job has made", true,
		"Approve what the jobs have made. They are completed then, and jobs that need them begin.",
		"  scheduler approve fix-login\n  scheduler approve fix-login -m \"fine, but watch the tests\"")
}

func rejectCommand(con *console, at *target) *cobra.Command {
	return answerCommand(con, at, "reject JOB... -m FEEDBACK", "Reject what a job has made and run it again with feedback", false,
		`Say that what the jobs have made is not good enough, and why: the next attempt is told so.
When a job was rejected as often as its oversight's max_retries allows, it fails.`,
		"  scheduler reject fix-login -m \"the error message must name the user\"")
}

func answerCommand(con *console, at *target, use, short string, approve bool, long, example string) *cobra.Command {
	a := api.Answer{Approved: approve}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.By == "" {
				a.By = userName()
			}
			return at.do(func(p *peer) error {
				return changeJobs(cmd.Context(), con, p, args, func(ref string) (api.JobDetail, error) {
					j, err := p.Decide(cmd.Context(), ref, a)
					if refused, ok := errors.AsType[*api.Problem](err); ok && refused.Status == http.StatusBadRequest {
						err = usage(err, `give it with -m, e.g. scheduler reject `+ref+` -m "the tests are missing"`)
					}
					return j, err
				}, func(_ string, j *api.Job) string {
					return fmt.Sprintf("%s  %s  %s", j.ID, j.Spec.Name, answered(con.out(), j, approve))
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&a.Comment, "message", "m", "", "a comment")
	f.StringVar(&a.By, "by", "", "evaluate under this `NAME` (default: yours)")
	con.jsonFlag(cmd, "print the jobs as JSON")
	return cmd
}

// answered says what an answer has led to. A job that goes on may have begun by now,
// so that its state would say another thing each time.
func answered(w io.Writer, e *api.Job, approved bool) string {
	switch {
	case e.State.Terminal():
		return stateOn(w, stateWord(e))
	case approved:
		return "approved, goes on"
	default:
		return "rejected, runs again"
	}
}

// userName returns who runs this program: "uid 1234" if the host has no name for it.
func userName() string { return access.UserName(os.Getuid()) }
