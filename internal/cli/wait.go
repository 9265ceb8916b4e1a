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
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// exitTimeout: what was waited for did not come in time, as timeout(1) says it.
const exitTimeout = 124

func waitCommand(con *console, at *target) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait JOB...", Short: "Wait until jobs have ended", Args: cobra.MinimumNArgs(1),
		Long: `Wait until the jobs have ended, and print each as it does. It does not matter which
scheduler runs them, or whether one does yet. A job that waits for a person goes on
waiting.

Exit code: 0 all of them completed; 1 one did not, or cannot be found; 124 the time was
over; 130 interrupted.`,
		Example: "  scheduler wait fix-login\n  scheduler wait fix-login write-docs --timeout 30m && scheduler apply fix-login",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("timeout") && timeout <= 0 {
				return usage(fmt.Errorf("invalid --timeout %s: use a length of time such as 90s or 30m", timeout))
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return at.do(func(s *peer) error { return waitFor(ctx, con, s, args, timeout) })
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this `TIME`, e.g. 30m")
	con.jsonFlag(cmd, "print the jobs as JSON, in the end")
	return cmd
}

// errTimeout is the cause of the end of a wait that took too long.
var errTimeout = errors.New("the time is over")

func waitFor(ctx context.Context, con *console, s *peer, refs []string, timeout time.Duration) error {
	waiting := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
	}
	jobs, err := findAll(waiting, s, refs)
	if waiting.Err() != nil {
		return waitEnded(waiting, refs)
	}
	if err != nil {
		return err
	}
	s.BePatient()
	err = untilEnded(waiting, con, s, jobs)
	if con.json {
		err = errors.Join(err, writeEnded(ctx, con, s, jobs))
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(jobs, func(j api.JobDetail) bool {
		return statusOf(&j.Job).State != job.RunCompleted && j.Job.Skipped == ""
	}) {
		return &exitError{code: exitFailed}
	}
	return nil
}

// answersTime is how long the answers of jobs that have ended are asked for after a wait.
const answersTime = 30 * time.Second

// writeEnded writes the jobs as JSON, with the answers of those that have ended.
func writeEnded(ctx context.Context, con *console, s *peer, jobs []api.JobDetail) error {
	out := struct {
		api.Jobs
		Answers map[job.ID]string `json:"answers"`
	}{api.Jobs{Jobs: []api.Job{}, Total: len(jobs)}, map[job.ID]string{}}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answersTime) // the time to wait may be over
	defer cancel()
	for i := range jobs {
		out.Jobs.Jobs = append(out.Jobs.Jobs, jobs[i].Job)
		text, err := endedWith(ctx, s, &jobs[i])
		if err != nil {
			return err
		}
		if text != "" {
			out.Answers[jobs[i].Job.ID] = text
		}
	}
	return failure(writeJSON(con.stdout, out))
}

// endedWith returns what a job that has ended answered.
func endedWith(ctx context.Context, s *peer, j *api.JobDetail) (string, error) {
	if !j.Job.State.Terminal() {
		return "", nil
	}
	return answerOf(ctx, s, &j.Job, j.Attempts)
}

// findAll returns the jobs that refs name, each once.
func findAll(ctx context.Context, s *peer, refs []string) ([]api.JobDetail, error) {
	var list []api.JobDetail
	var errs []error
	for _, ref := range refs {
		j, err := s.Job(ctx, ref)
		if err != nil {
			errs = append(errs, err)
		} else if !slices.ContainsFunc(list, func(other api.JobDetail) bool { return other.Job.ID == j.Job.ID }) {
			list = append(list, j)
		}
	}
	return list, joined(errs)
}

// untilEnded looks after the jobs until all have ended, and prints each as it does.
func untilEnded(ctx context.Context, con *console, s *peer, jobs []api.JobDetail) error {
	told, asked := map[job.ID]bool{}, map[job.ID]bool{}
	for {
		var left []string
		for i := range jobs {
			e := &jobs[i].Job
			if !e.State.Terminal() {
				j, err := s.Job(ctx, string(e.ID))
				switch {
				case ctx.Err() != nil:
				case err != nil:
					return err
				default:
					jobs[i] = j
				}
			}
			switch {
			case !e.State.Terminal():
				left = append(left, string(e.Spec.Name))
				if e.Held == job.HeldForApproval && !asked[e.ID] {
					asked[e.ID] = true
					fmt.Fprintf(con.stderr, "%s is waiting for approval: `scheduler approvals show %s`\n", e.Spec.Name, e.Spec.Name)
				}
			case !told[e.ID] && !con.json:
				told[e.ID] = true
				answer, err := endedWith(ctx, s, &jobs[i])
				if err != nil {
					return err
				}
				fmt.Fprintf(con.stdout, "%s  %s  %s%s\n", e.ID, e.Spec.Name, stateOn(con.out(), stateWord(e)), whyEnded(e, answer))
			}
		}
		if len(left) == 0 {
			return nil
		}
		if err := pause(ctx, s.Pace()); err != nil {
			return waitEnded(ctx, left)
		}
	}
}

// whyEnded is what stands behind a state: a reason, or the answer's first line.
func whyEnded(e *api.Job, answer string) string {
	for _, text := range []string{note(e), terminal.FirstLine(answer)} {
		if text = terminal.Clean(text); text != "" {
			return "  " + text
		}
	}
	return ""
}

// pause waits; the error is that of the context.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// waitEnded gives the end of a wait its exit code.
func waitEnded(ctx context.Context, left []string) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return &exitError{code: exitTimeout, err: fmt.Errorf("%w, and %s: %s", errTimeout, hasNotEnded(len(left)), strings.Join(left, ", "))}
	}
	return &exitError{code: exitInterrupted}
}

func hasNotEnded(n int) string {
	if n == 1 {
		return "1 job has not ended"
	}
	return fmt.Sprintf("%d jobs have not ended", n)
}
