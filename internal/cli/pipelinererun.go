package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// rerunFlags are which events of a pipeline are replayed.
type rerunFlags struct {
	stage        string
	types        []string
	from, to     int64
	since, until string
}

func pipelinesRerunCommand(con *console, at *target) *cobra.Command {
	var f rerunFlags
	cmd := &cobra.Command{
		Use: "rerun PIPELINE", Short: "Replay a pipeline's recorded events in a new run", Args: cobra.ExactArgs(1),
		Long: `Give recorded events of a pipeline to its stages again, in a new run that names the old one,
which stays as it is. Without --stage and --type it is done again from the seed on. With
--stage, that stage and those behind it run again, on what the stages before it had published.
With --type, only events of these types are given, from the first stage on that takes one.`,
		Example: "  scheduler pipelines rerun web-testing\n  scheduler pipelines rerun web-testing --stage observer\n  scheduler pipelines rerun web-testing --type load_result --from 12 --to 80",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.replay(time.Now())
			if err != nil {
				return usage(err)
			}
			return rerun(cmd.Context(), con, at, args[0], r)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.stage, "stage", "", "the first `STAGE` that runs again")
	flags.StringSliceVar(&f.types, "type", nil, "only events of this `TYPE`; may be repeated")
	flags.Int64Var(&f.from, "from", 0, "only events from this sequence `NUMBER` on")
	flags.Int64Var(&f.to, "to", 0, "only events up to this sequence `NUMBER`")
	flags.StringVar(&f.since, "since", "", "only what was published since this `TIME`")
	flags.StringVar(&f.until, "until", "", "only what was published before this `TIME`")
	return cmd
}

func (f *rerunFlags) replay(now time.Time) (api.Replay, error) {
	r := api.Replay{Stage: job.Name(f.stage), From: f.from, To: f.to}
	for _, t := range f.types {
		r.Types = append(r.Types, job.EventType(strings.TrimSpace(t)))
	}
	var errs []error
	for _, x := range []struct {
		flag, text string
		field      **time.Time
	}{{"--since", f.since, &r.Since}, {"--until", f.until, &r.Until}} {
		if x.text == "" {
			continue
		}
		t, err := pastTime(x.text, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", x.flag, err))
		}
		*x.field = &t
	}
	return r, errors.Join(errs...)
}

// rerun replays recorded events in a new run.
func rerun(ctx context.Context, con *console, at *target, ref string, r api.Replay) error {
	return at.do(func(p *peer) error {
		out, err := change(ctx, p, func() (api.Replayed, error) { return p.ReplayPipeline(ctx, ref, r) })
		switch {
		case err != nil:
			return err
		case con.json:
			return writeJSON(con.stdout, out)
		}
		fmt.Fprintf(con.stdout, "run %s replays %d events of run %s from stage %s on: %s\n", out.Batch, out.Events, out.Replays.Batch, out.Replays.Stage, strings.Join(wordsOf(out.Replays.Types), ", "))
		tellIdle(con, p)
		return nil
	})
}
