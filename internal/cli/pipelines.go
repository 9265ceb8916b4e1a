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

func pipelinesCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pipelines", Short: "Show pipelines and their events, replay them",
		Long: `Show pipelines, how their stages stand, and the events that have streamed through them:
docs/pipelines.md. PIPELINE is an id from the job file (the newest of that id), or the id of
its batch or 8 or more of that one's first or last characters.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(pipelinesLsCommand(at), pipelinesEventsCommand(con, at), pipelinesReplayCommand(con, at), pipelinesRerunCommand(con, at))
	return cmd
}

func pipelinesLsCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [PIPELINE]", Short: "Show how the stages of pipelines stand, and their dead letters", Args: cobra.MaximumNArgs(1),
		Long: `Show how the stages of pipelines stand: how many events each has acknowledged, has waiting,
has published and could not handle.`,
		Example: "  scheduler pipelines ls\n  scheduler pipelines ls web-testing --json",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, args []string) (api.Pipelines, error) {
		name := strings.Join(args, "")
		list, err := p.Pipelines(ctx, name)
		if err == nil && len(list) == 0 && name != "" {
			err = fmt.Errorf("there is no pipeline %s; `scheduler pipelines ls` lists them", name)
		}
		return api.Pipelines{Pipelines: list}, err
	}, func(w io.Writer, v api.Pipelines) error {
		if len(v.Pipelines) == 0 {
			_, err := fmt.Fprintln(w, "no pipelines")
			return err
		}
		return printPipelines(w, v.Pipelines, time.Now())
	})
}

func printPipelines(w io.Writer, list []api.Pipeline, now time.Time) error {
	err := table(w, "PIPELINE\tBATCH\tSUBMITTED\tSTAGE\tSTATE\tACKED\tWAITING\tPUBLISHED\tDEAD", func(w io.Writer) {
		for i := range list {
			p := &list[i]
			recorded := p.Replays != nil // the stages before the first that runs again
			for _, s := range p.Stages {
				state := stageState(&s)
				if recorded = recorded && s.Stage != p.Replays.Stage; recorded {
					state = "recorded"
				}
				fmt.Fprintf(w, "%s\t%.8s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", p.ID, p.Batch, clock(p.Created, now), s.Stage, state, s.Acked, s.Backlog, s.Published, s.Dead)
			}
		}
	})
	gap := "\n"
	for i := range list {
		if r := list[i].Replays; r != nil {
			fmt.Fprintf(w, "%s%s %s: replays run %s from stage %s on: %s\n", gap, list[i].ID, list[i].Batch, r.Batch, r.Stage, strings.Join(wordsOf(r.Types), ", "))
			gap = ""
		}
		for _, d := range list[i].Letters {
			why := strings.TrimPrefix(d.Message, string(d.Class)+": ") // of a job that was given up it says the class itself
			fmt.Fprintf(w, "%s%s: stage %s could not handle event %d (%s): %s: %s\n", gap, list[i].ID, d.Stage, d.Event.Seq, d.Event.Type, d.Class, terminal.Clean(why))
			gap = ""
		}
	}
	return err
}

func stageState(s *api.PipelineStage) string {
	switch {
	case s.Failed != "":
		return "failed: " + terminal.Clean(s.Failed)
	case s.Ended:
		return "ended"
	}
	return "open"
}

func pipelinesEventsCommand(con *console, at *target) *cobra.Command {
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use: "events PIPELINE", Short: "Print the events of a pipeline", Args: cobra.ExactArgs(1),
		Long:    "Print the events that have streamed through a pipeline, as its log has them, the oldest first.",
		Example: "  scheduler pipelines events web-testing --after 100\n  scheduler pipelines events web-testing --json | jq .data",
		RunE: func(cmd *cobra.Command, args []string) error {
			if after < 0 || limit < 1 {
				return usage(fmt.Errorf("invalid --after %d --limit %d: use 0 or more, and 1 or more", after, limit))
			}
			return at.do(func(r *peer) error {
				events, err := r.eventsOfPipeline(cmd.Context(), args[0], after, limit)
				if err != nil {
					return err
				}
				if con.json {
					enc := terminal.NewEncoder(con.stdout)
					for i := range events {
						if err := enc.Encode(events[i]); err != nil {
							return err
						}
					}
					return nil
				}
				return table(con.out(), "SEQ\tTIME\tSTAGE\tTYPE\tFOR\tDATA", func(w io.Writer) {
					for i := range events {
						e := &events[i]
						data, _ := job.Cut(string(e.Data), 200)
						fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", e.Seq, clock(e.Time, time.Now()), dash(string(e.Stage)), e.Type, dash(strings.Trim(fmt.Sprint(e.For), "[]")), terminal.Clean(data))
					}
				})
			})
		},
	}
	f := cmd.Flags()
	f.Int64Var(&after, "after", 0, "only events with a larger sequence `NUMBER`")
	f.IntVar(&limit, "limit", 1000, "at most so `MANY`")
	con.jsonFlag(cmd, "print JSON Lines")
	return cmd
}

// eventsOfPipeline returns the events of a pipeline after a sequence number, at most limit.
func (r *peer) eventsOfPipeline(ctx context.Context, ref string, after int64, limit int) (all []api.PipelineEvent, err error) {
	for len(all) < limit {
		page, err := r.PipelineEvents(ctx, ref, after, min(limit-len(all), maxPage))
		if err != nil || len(page.Events) == 0 {
			return all, err
		}
		all = append(all, page.Events...)
		after = all[len(all)-1].Seq
	}
	return all, nil
}

func pipelinesReplayCommand(con *console, at *target) *cobra.Command {
	var r api.Rewind
	var stage string
	cmd := &cobra.Command{
		Use: "replay PIPELINE --stage STAGE [--from N] [--again]", Short: "Replay the events of a stage", Args: cobra.ExactArgs(1),
		Long: `Replay the events of a stage, from a sequence number on: the state that it keeps is rebuilt,
and what it could not handle is tried once more. What it publishes for events
that it had acknowledged is dropped, since that is in the log, unless --again is given.
A stage that has ended is replayed in a new run, by ` + "`scheduler pipelines rerun`" + `.`,
		Example: "  scheduler pipelines replay web-testing --stage observer --from 12",
		RunE: func(cmd *cobra.Command, args []string) error {
			if stage == "" {
				return usage(errors.New("no stage was named"), "name it with --stage; `scheduler pipelines ls` lists them")
			}
			if r.From < 1 {
				return usage(fmt.Errorf("invalid --from %d: use 1 or more", r.From))
			}
			r.Stage = job.Name(stage)
			return at.do(func(p *peer) error {
				out, err := change(cmd.Context(), p, func() (api.Rewound, error) { return p.Replay(cmd.Context(), args[0], r) })
				if err != nil {
					return err
				}
				return con.print(out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "stage %s does its events again from %d on\n", stage, out.First)
					return err
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&stage, "stage", "", "which `STAGE`")
	f.Int64Var(&r.From, "from", 1, "the sequence `NUMBER` of the first event to do again")
	f.BoolVar(&r.Again, "again", false, "publish what comes of them a second time")
	return cmd
}
