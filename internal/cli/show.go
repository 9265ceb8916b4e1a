package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
)

// shows makes cmd print what get returns: as a person reads it, by print, or with --json
// as it is.
func shows[T any](at *target, cmd *cobra.Command, get func(context.Context, *peer, []string) (T, error), print func(io.Writer, T) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return at.do(func(p *peer) error {
			v, err := get(cmd.Context(), p, args)
			if err != nil {
				return err
			}
			return at.con.print(v, func(w io.Writer) error { return print(w, v) })
		})
	}
	return cmd
}

// print prints what a command has come to: with --json v as it is, else what text writes.
func (con *console) print(v any, text func(io.Writer) error) error {
	if con.json {
		return failure(writeJSON(con.stdout, v))
	}
	return failure(text(con.out()))
}

// changeJobs has do change each job that refs name, and says of each what has become of
// it, or with --json of all together.
func changeJobs(ctx context.Context, con *console, p *peer, refs []string, do func(ref string) (api.JobDetail, error), say func(ref string, j *api.Job) string) error {
	done := api.Jobs{Jobs: []api.Job{}}
	var errs []error
	for _, ref := range refs {
		j, err := changeJob(ctx, p, ref, func() (api.JobDetail, error) { return do(ref) })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if done.Jobs = append(done.Jobs, j); !con.json {
			fmt.Fprintln(con.stdout, say(ref, &j))
		}
	}
	if done.Total = len(done.Jobs); con.json {
		errs = append(errs, writeJSON(con.stdout, done))
	}
	return joined(errs)
}
