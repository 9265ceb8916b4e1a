package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
)

func retryCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "retry JOB...", Short: "Run finished jobs again", Args: cobra.MinimumNArgs(1),
		Long: `Run finished jobs again, each as a new job with all its attempts: a dead letter is
requeued, any other job that stands alone is submitted again. A job of a workflow runs again
with its workflow. ` + "`scheduler dlq requeue` and `edit`" + ` can change a dead letter before it runs again.

Without a running scheduler the jobs wait for the next one.

Exit code: 0 all of them run again; 1 one does not.`,
		Example: "  scheduler retry fix-login\n  scheduler wait $(scheduler retry fix-login --json | jq -r '.jobs[].id')",
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.do(func(p *peer) error {
				err := changeJobs(cmd.Context(), con, p, args, func(ref string) (api.JobDetail, error) { return p.Retry(cmd.Context(), ref) },
					func(ref string, j *api.Job) string {
						return fmt.Sprintf("%s  %s  runs %s again", j.ID, j.Spec.Name, ref)
					})
				tellIdle(con, p)
				return err
			})
		},
	}
	con.jsonFlag(cmd, "print the new jobs as JSON")
	return cmd
}

// tellIdle says who works on jobs that were submitted while no scheduler runs.
func tellIdle(con *console, p *peer) {
	if p.offline != nil && p.offline.changed() {
		fmt.Fprintln(con.stderr, "no scheduler is running: the next `scheduler serve`, or `run`, works on them")
	}
}

// joined is one error of several: with all that they say, and the worst exit code.
func joined(errs []error) error {
	var all *exitError
	var said []error
	for _, err := range errs {
		if err == nil {
			continue
		}
		exit, _ := errors.AsType[*exitError](coded(err))
		if all == nil {
			all = &exitError{}
		}
		if all.code = max(all.code, exit.code); exit.err != nil {
			said = append(said, exit.err)
		}
		all.hints = append(all.hints, exit.hints...)
	}
	if all == nil {
		return nil
	}
	all.err = errors.Join(said...)
	return all
}

// coded gives an error that has no exit code that of a failure.
func coded(err error) error {
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	return failure(err)
}
