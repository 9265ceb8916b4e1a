package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// waitForBatches shows how the jobs of the batches that were submitted fare until
// all have ended, as run does, and returns its exit code.
func waitForBatches(ctx context.Context, con *console, s *peer, submitted []api.Job, o runOptions) error {
	var batches []job.BatchID
	for i := range submitted {
		if !slices.Contains(batches, submitted[i].Batch) {
			batches = append(batches, submitted[i].Batch)
		}
	}
	f := newFollower(s, batches, con.followView(submitted, o.plain))
	s.BePatient()
	defer f.view.Done() // whatever happens, the terminal is given back
	entries, err := f.follow(ctx)
	f.view.Done()
	if ctx.Err() != nil {
		return &exitError{code: exitInterrupted, err: errors.New("the wait was interrupted: the jobs go on"),
			hints: []string{"`scheduler wait " + strings.Join(unfinishedNames(entries), " ") + "` waits for them again"}}
	}
	if err != nil {
		return err
	}
	if err := con.printSummary(ctx, s, entries, o.paths); err != nil {
		return failure(err)
	}
	if anyFailed(entries) {
		return &exitError{code: exitFailed}
	}
	return nil
}

// followView is what shows the progress of jobs that another process runs.
func (con *console) followView(entries []api.Job, plain bool) terminal.View {
	if con.json {
		return terminal.NewJSON(con.stdout)
	}
	if out := con.stdoutFile(); !plain && out != nil && terminal.CanLive(out, con.getenv("TERM")) {
		return terminal.NewLive(out, con.stdin, progressJobs(entries), terminal.LiveOptions{Colour: con.colour(out)})
	}
	return terminal.NewPlain(con.stdout, progressJobs(entries), nil)
}

// follower tells a view what happens to the jobs of batches, by looking again and
// again: so it works wherever they run, and over restarts of the scheduler.
type follower struct {
	reader  *peer
	view    terminal.View
	batches []job.BatchID
	seen    map[job.ID]string // how a job stood
	read    map[job.ID]int64  // up to where its log was shown
	// enough, if it is not nil, is asked after each look and says whether to end it
	// although jobs are unfinished.
	enough func(context.Context, []api.Job) (bool, error)
}

func newFollower(s *peer, batches []job.BatchID, view terminal.View) *follower {
	return &follower{reader: s, view: view, batches: batches, seen: map[job.ID]string{}, read: map[job.ID]int64{}}
}

// follow returns when all jobs have ended, with them, or with the context.
func (f *follower) follow(ctx context.Context) ([]api.Job, error) {
	for {
		entries, err := f.reader.JobsOf(ctx, f.batches)
		if err != nil {
			return entries, err
		}
		open := false
		for i := range entries {
			if err := f.tell(ctx, &entries[i]); err != nil {
				return entries, err
			}
			open = open || !entries[i].State.Terminal()
		}
		if !open {
			return entries, nil
		}
		if f.enough != nil {
			if enough, err := f.enough(ctx, entries); enough || err != nil {
				return entries, err
			}
		}
		if err := pause(ctx, f.reader.Pace()); err != nil {
			return entries, err
		}
	}
}

// tell shows what is new about a job: its state, its log, and how it has ended.
func (f *follower) tell(ctx context.Context, e *api.Job) error {
	st := statusOf(e)
	now := fmt.Sprint(e.State, e.Held, e.Attempts, e.Choice, e.CancelRequested, e.Waiting, e.Spent)
	if st.Waiting != nil {
		now += string(st.Waiting.Reason)
	}
	changed := f.seen[e.ID] != now
	if !changed && e.State != job.Dispatched {
		return nil
	}
	if changed && !e.State.Terminal() {
		f.view.Show(updateAbout(e))
	}
	// The state was read before the events: when it is terminal, all are there.
	for {
		events, err := f.reader.Events(ctx, e.ID, f.read[e.ID])
		if err != nil {
			return err
		}
		for i := range events {
			f.read[e.ID] = events[i].Cursor
			f.view.Show(updateOfEvent(e, &events[i].Event))
		}
		if len(events) == 0 {
			break
		}
	}
	if changed && e.State.Terminal() {
		f.view.Show(updateAbout(e))
	}
	f.seen[e.ID] = now
	return nil
}

// updateAbout is what a scheduler would tell of a job that stands so.
func updateAbout(e *api.Job) api.Update {
	spent, st := e.Spent, statusOf(e)
	return api.Update{
		Kind: api.UpdateJob, Time: utcNow(), Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Worker: workerOf(e), Attempt: e.Attempts,
		Entry: e.State, State: st.State, Waiting: st.Waiting, ExitKind: e.ExitKind, Usage: &spent, Text: st.Line(), Skipped: e.Skipped != "",
	}
}

func updateOfEvent(e *api.Job, event *job.Event) api.Update {
	return api.Update{
		Kind: api.UpdateEvent, Time: event.Time, Job: e.ID, Name: e.Spec.Name, Tenant: e.Spec.Tenant, Worker: workerOf(e), Attempt: e.Attempts,
		Entry: e.State, State: job.Running, Event: event,
	}
}

// anyFailed reports whether a job of a run has not completed, other than as it was
// to be: skipped, done again by its team, submitted by the agent of another, or part of one, that says how it went.
func anyFailed(entries []api.Job) bool {
	again := restarted(entries)
	here := map[job.ID]bool{}
	for i := range entries {
		here[entries[i].ID] = true
	}
	return slices.ContainsFunc(entries, func(e api.Job) bool {
		state := statusOf(&e).State
		return state != job.RunCompleted && e.Skipped == "" && !here[e.Spec.Lead.Job] && !again[e.ID] && (e.Spec.Flow.Node == "" || state != job.RunCancelled)
	})
}

func unfinishedNames(entries []api.Job) []string {
	var names []string
	for i := range entries {
		if e := &entries[i]; !e.State.Terminal() && e.Spec.Flow.Node == "" {
			names = append(names, string(e.ID))
		}
	}
	return names[:min(len(names), 20)]
}
