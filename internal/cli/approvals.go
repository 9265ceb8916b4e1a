package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func (m *Main) approvalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "approvals", Short: "Show what waits for a person",
		Long: `Show the jobs whose work waits for a person, because of their oversight: docs/oversight.md.
They hold no worker, and go on waiting whether a scheduler runs or not.`,
		Args:    cobra.NoArgs,
		Example: "  scheduler approvals ls\n  scheduler approvals show fix-login",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(m.approvalsLsCommand(), m.approvalsShowCommand())
	return cmd
}

func (m *Main) approvalsLsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List what waits for a person", Args: cobra.NoArgs,
		Long: `List the jobs whose work waits for a person, since when, why, and what counts as the answer
if none comes in time.`,
		Example: "  scheduler approvals ls\n  scheduler approvals ls --json | jq -r '.jobs[].id'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.read(func(s *reader) error {
				list, err := s.Approvals(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return failure(writeJSON(m.stdout, list))
				}
				if list.Total == 0 {
					fmt.Fprintln(m.stdout, "nothing waits for a person")
					return nil
				}
				return failure(printApprovals(m.out(), list.Jobs, time.Now()))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printApprovals(w io.Writer, list []api.Job, now time.Time) error {
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

func (m *Main) approvalsShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show JOB", Short: "Show what a person is to look at", Args: cobra.ExactArgs(1),
		Long: `Show what a job has made that waits for a person: its answer, what it has changed, why it
asks, and how to answer. Of one that was answered, by whom and how.`,
		Example: "  scheduler approvals show fix-login",
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.read(func(s *reader) error {
				j, err := s.Job(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				e := &j.Job
				if e.Approval == nil {
					return usage(fmt.Errorf("job %s (%s) is %s and was never asked about", e.ID, e.Spec.Name, stateWord(e)), "`scheduler approvals ls` lists what waits")
				}
				if asJSON {
					return failure(writeJSON(m.stdout, j))
				}
				m.printApproval(e, j.Attempts)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the job and its attempts as JSON")
	return cmd
}

func (m *Main) printApproval(e *api.Job, attempts []job.Attempt) {
	a, w := e.Approval, m.stdout
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
}

func (m *Main) approveCommand() *cobra.Command {
	return m.answerCommand("approve JOB...", "Let what a job has made count", true,
		"Say that what the jobs have made is good. They are done then, and what needs them begins.",
		"  scheduler approve fix-login\n  scheduler approve fix-login -m \"fine, but watch the tests\"")
}

func (m *Main) rejectCommand() *cobra.Command {
	return m.answerCommand("reject JOB... -m FEEDBACK", "Have a job do its work again, with feedback", false,
		`Say that what the jobs have made is not good enough, and why: the next attempt is told so.
When a job was rejected as often as its oversight's max_retries allows, it fails.`,
		"  scheduler reject fix-login -m \"the error message must name the user\"")
}

func (m *Main) answerCommand(use, short string, approve bool, long, example string) *cobra.Command {
	a := api.Answer{Approved: approve}
	var asJSON bool
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.By == "" {
				a.By = userName()
			}
			return m.on(func(s site) error {
				done := api.Jobs{Jobs: []api.Job{}}
				var errs []error
				for _, ref := range args {
					e, err := s.Decide(cmd.Context(), ref, a)
					if err != nil {
						errs = append(errs, err)
						continue
					}
					done.Jobs = append(done.Jobs, e)
				}
				done.Total = len(done.Jobs)
				if asJSON {
					errs = append(errs, failure(writeJSON(m.stdout, done)))
				} else {
					for i := range done.Jobs {
						e := &done.Jobs[i]
						fmt.Fprintf(m.stdout, "%s  %s  %s\n", e.ID, e.Spec.Name, answered(m.out(), e, approve))
					}
				}
				return joined(errs)
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&a.Comment, "message", "m", "", "what you have to say about it")
	f.StringVar(&a.By, "by", "", "in whose `NAME` (default: yours)")
	f.BoolVar(&asJSON, "json", false, "print the jobs as JSON")
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
		return "rejected, is done again"
	}
}

// userName returns who runs this program: "uid 1234" if the host has no name for it.
func userName() string { return access.UserName(os.Getuid()) }
