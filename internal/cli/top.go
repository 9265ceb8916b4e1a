package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func topCommand(con *console, at *target) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "top", Short: "Watch the running scheduler, live", Args: cobra.NoArgs,
		Long: `Watch the running scheduler on the terminal, live: jobs that run or wait and why, the share
of each tenant against its target, workers with the state of their breakers, rates, cost, and
the stage of the watchdog. What waits for you comes first, with what is asked, then what runs, with
what it has done last. It goes on through restarts of the scheduler.

  ↑ ↓ PgUp PgDn   choose a job         a   say yes to what its agent asks, or approve what it made
  enter, l        follow its log       r   say no, with words, or reject it, with a comment
  t               talk with its agent  c   cancel it
  /               filter               p   pause everything, or resume it
  s               sort                 q   leave; the jobs go on

What a program reads are ` + "`scheduler status --json` and `ls --json`" + `.`,
		Example: "  scheduler top\n  scheduler top --server https://build.example:7433 --every 5s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return usage(fmt.Errorf("invalid --every %s: use 100ms or more", every))
			}
			out := con.stdoutFile()
			if out == nil || !terminal.CanLive(out, con.getenv("TERM")) || con.stdin == nil || !term.IsTerminal(int(con.stdin.Fd())) {
				return usage(errors.New("top needs a terminal"), "`scheduler status`, `tenants`, `workers` and `ls` print the same as text, or with --json")
			}
			c, err := at.running()
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return failure(terminal.RunTop(ctx, con.stdin, out, con.getenv("TERM"), watched{client: c, con: con, at: at}, terminal.TopOptions{Colour: con.colour(out), Name: at.server, Every: every}))
		},
	}
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "look this `OFTEN`; what changes is shown at once")
	return cmd
}

// watched is a running scheduler as `top` knows it.
type watched struct {
	client *client.Client
	con    *console
	at     *target
}

// maxWatched is how many jobs of a kind are looked at.
const maxWatched = 500

// Look asks for everything on one screen.
func (w watched) Look(ctx context.Context) (p terminal.TopPicture, err error) {
	if p.Overview, err = w.client.Overview(ctx); err != nil {
		return p, err
	}
	if p.Workers, err = w.client.Workers(ctx); err != nil {
		return p, err
	}
	// What runs and what waits for a person come first: of what waits otherwise
	// there may be far more than anybody looks at.
	have := map[job.ID]bool{}
	add := func(list api.Jobs, err error) error {
		for i := range list.Jobs {
			if e := &list.Jobs[i]; !have[e.ID] {
				have[e.ID] = true
				p.Jobs = append(p.Jobs, *e)
			}
		}
		return err
	}
	if err = add(w.client.List(ctx, client.ListQuery{States: []job.EntryState{job.Dispatched}, Limit: maxWatched})); err != nil {
		return p, err
	}
	if err = add(w.client.Approvals(ctx)); err != nil {
		return p, err
	}
	asked, err := w.client.OpenQuestions(ctx, "")
	if err != nil {
		return p, err
	}
	p.Questions = asked.Questions
	waiting, err := w.client.List(ctx, client.ListQuery{States: []job.EntryState{job.Queued}, Limit: maxWatched})
	running := len(p.Jobs)
	if err = add(waiting, err); err != nil {
		return p, err
	}
	p.Total = max(waiting.Total+p.Overview.Census.Dispatched, running)
	return p, nil
}

// watchedKinds are the kinds of updates that are shown, or say that something else is to be.
var watchedKinds = []api.UpdateKind{api.UpdateJob, api.UpdateCore, api.UpdateCircuit, api.UpdateEscalation, api.UpdateSignal, api.UpdateEvent}

// Watch passes on what changes.
func (w watched) Watch(ctx context.Context, see func(api.Update)) error {
	ctx, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	// The view connects again by itself, and shows that it has to.
	for u, err := range w.client.Stream(ctx, client.StreamOptions{Kinds: watchedKinds, OnBreak: func(err error, _ time.Duration) { broken(err) }}) {
		if err != nil {
			return err
		}
		see(u)
	}
	return context.Cause(ctx)
}

// Events returns what happened in a job's runs.
func (w watched) Events(ctx context.Context, id job.ID, after int64, limit int) ([]api.Event, error) {
	page, err := w.client.Events(ctx, string(id), after, limit)
	return page.Events, err
}

// Cancel cancels a job.
func (w watched) Cancel(ctx context.Context, id job.ID) error {
	_, err := w.client.Cancel(ctx, string(id))
	return err
}

// Answer approves or rejects what a job has made.
func (w watched) Answer(ctx context.Context, id job.ID, approve bool, comment string) error {
	_, err := w.client.Decide(ctx, string(id), api.Answer{Approved: approve, Comment: comment, By: userName()})
	return err
}

// AnswerQuestion answers what the agent of a job asks.
func (w watched) AnswerQuestion(ctx context.Context, id job.ID, number int, in api.AnswerQuestion) error {
	in.By = userName()
	_, err := w.client.AnswerQuestion(ctx, string(id), number, in)
	return err
}

// Attach takes part in the conversation of a job.
func (w watched) Attach(ctx context.Context, id job.ID) error {
	return attach(ctx, w.con, w.at, string(id), userName())
}

// Pause lets nothing new begin.
func (w watched) Pause(ctx context.Context) error {
	_, err := w.client.Pause(ctx, api.Pause{Scope: string(isolation.Global), Reason: "paused in scheduler top"})
	return err
}

// Resume undoes it.
func (w watched) Resume(ctx context.Context) error {
	_, err := w.client.Resume(ctx, string(isolation.Global))
	return err
}
