package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
)

func checkpointCommand(con *console, at *target) *cobra.Command {
	var in api.Checkpoint
	cmd := &cobra.Command{
		Use: "checkpoint JOB...", Short: "Stop a running job at its next step, to go on from there later", Args: cobra.MinimumNArgs(1),
		Long: `Ask running jobs to stop at the boundary of the step that they are in. What they have
done is kept, and each goes on from there as soon as it is its turn again: at once, if there
is room. Workers that speak the worker protocol and keep steps can: docs/worker-protocol.md.`,
		Example: "  scheduler checkpoint crawl -m \"the host is needed for something else\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.do(func(p *peer) error {
				return changeJobs(cmd.Context(), con, p, args, func(ref string) (api.JobDetail, error) { return p.Checkpoint(cmd.Context(), ref, in) },
					func(_ string, j *api.Job) string {
						return fmt.Sprintf("%s  %s  stops at its next step", j.ID, j.Spec.Name)
					})
			})
		},
	}
	cmd.Flags().StringVarP(&in.Reason, "message", "m", "", "why, for the worker and the log")
	con.jsonFlag(cmd, "print the jobs as JSON")
	return cmd
}
