package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
)

func (m *Main) checkpointCommand() *cobra.Command {
	var in api.Checkpoint
	var asJSON bool
	cmd := &cobra.Command{
		Use: "checkpoint JOB...", Short: "Have a running job stop at its next step, and go on from there", Args: cobra.MinimumNArgs(1),
		Long: `Ask running jobs to stop at the boundary of the step that they are in. What they have
done is kept, and each goes on from there as soon as it is its turn again: at once, if there
is room. Workers that speak the worker protocol and keep steps can: docs/worker-protocol.md.`,
		Example: "  scheduler checkpoint crawl -m \"the host is needed for something else\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := m.existing()
			if err != nil {
				return err
			}
			door := client.New(dir.Socket())
			defer door.Close()
			var errs []error
			done := api.Jobs{Jobs: []api.Job{}}
			for _, ref := range args {
				j, err := door.Checkpoint(cmd.Context(), ref, in)
				if errors.Is(err, client.ErrNotRunning) {
					return usage(err)
				}
				if err != nil {
					errs = append(errs, failure(err))
					continue
				}
				if done.Jobs = append(done.Jobs, j.Job); asJSON {
					continue
				}
				fmt.Fprintf(m.stdout, "%s  %s  stops at its next step\n", j.Job.ID, j.Job.Spec.Name)
			}
			if done.Total = len(done.Jobs); asJSON {
				errs = append(errs, failure(writeJSON(m.stdout, done)))
			}
			return joined(errs)
		},
	}
	cmd.Flags().StringVarP(&in.Reason, "message", "m", "", "why, for the worker and the log")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the jobs as JSON")
	return cmd
}
