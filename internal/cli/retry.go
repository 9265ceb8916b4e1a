package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
)

func (m *Main) retryCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "retry JOB...", Short: "Do jobs that have ended again", Args: cobra.MinimumNArgs(1),
		Long: `Do jobs that have ended again, each as a new job with all its attempts: a dead letter is
requeued, another that stands alone is submitted again. A job of a workflow is done again
with it. ` + "`scheduler dlq requeue` and `edit`" + ` can do a dead letter again otherwise than it was.

Without a running scheduler dead letters can be requeued; the next one works on them.

Exit code: 0 all of them are done again; 1 one is not; 2 a scheduler must be running for it.`,
		Example: "  scheduler retry fix-login\n  scheduler wait $(scheduler retry fix-login --json | jq -r '.jobs[].id')",
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.on(func(s site) error {
				done := api.Jobs{Jobs: []api.Job{}}
				var errs []error
				for _, ref := range args {
					e, err := s.Retry(cmd.Context(), ref)
					if err != nil {
						errs = append(errs, err)
						continue
					}
					done.Jobs = append(done.Jobs, e)
					if !asJSON {
						fmt.Fprintf(m.stdout, "%s  %s  does %s again\n", e.ID, e.Spec.Name, ref)
					}
				}
				if done.Total = len(done.Jobs); asJSON {
					errs = append(errs, failure(writeJSON(m.stdout, done)))
				}
				return joined(errs)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the new jobs as JSON")
	return cmd
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
