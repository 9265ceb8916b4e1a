package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
)

// teamSpace is the name of the space of a batch that holds what its teams have
// decided.
const teamSpace = "teams"

// teamFacts returns what is durable about the members of teams.
func (f *Followers) teamFacts(ctx context.Context, id job.BatchID, known *followed) (workflow.TeamFacts, error) {
	facts := workflow.TeamFacts{Runs: map[job.Name][]workflow.MemberRun{}}
	for _, e := range known.jobs {
		name, _, _ := strings.Cut(string(e.Spec.Name), "+")
		if e.Spec.Flow.Node != "" {
			continue
		}
		r := workflow.MemberRun{Generation: e.Spec.Flow.Restart, Exit: workflow.ExitOf(e.State, e.ExitKind)}
		if e.CompletedAt != nil {
			r.EndedAt = *e.CompletedAt
		}
		facts.Runs[job.Name(name)] = append(facts.Runs[job.Name(name)], r)
	}
	for more := true; more; {
		after := "" // what was decided before does not change
		if n := len(known.incidents); n > 0 {
			after = known.incidents[n-1].Key()
		}
		page, err := f.store.Records(ctx, queue.BatchSpace(id, teamSpace), after, letterPage)
		if err != nil {
			return facts, fmt.Errorf("read what the teams of workflow %s have decided: %w", id, err)
		}
		for i := range page {
			var n workflow.Incident
			if err := json.Unmarshal(page[i].Value, &n); err != nil {
				return facts, fmt.Errorf("read decision %s of the teams of workflow %s: %w", page[i].Key, id, err)
			}
			known.incidents = append(known.incidents, n)
		}
		more = len(page) == letterPage
	}
	facts.Log = known.incidents
	return facts, nil
}

// superviseTeams does what the teams of a batch want next, and notes which ends of
// members are not final. It reports whether something was done.
func (f *Followers) superviseTeams(ctx context.Context, id job.BatchID, w *job.Workflow, known *followed) (done bool, err error) {
	if len(w.Teams) == 0 {
		return false, nil
	}
	if known.teams == nil {
		known.teams = workflow.NewTeams(w.Teams)
	}
	facts, err := f.teamFacts(ctx, id, known)
	if err != nil {
		return false, err
	}
	at := now()
	for _, a := range known.teams.Decide(facts) {
		var did bool
		switch a := a.(type) {
		case workflow.NoteIncident:
			did, err = true, f.noteIncident(ctx, id, a.Incident, at)
		case workflow.StopMember:
			did, err = f.stopMember(ctx, known.byName[a.Name()], a, at)
		case workflow.RestartMember:
			did, err = true, f.restartMember(ctx, id, known.byName, a, at)
		case workflow.FailTeam:
			if !known.failed[a.Team] {
				err = f.noteFailedTeam(ctx, id, a, at)
				known.failed[a.Team] = err == nil
			}
		}
		if err != nil {
			return false, err
		}
		done = done || did
	}
	unsettled := map[job.Name]bool{}
	for name, standing := range known.teams.Standings(facts) {
		unsettled[workflow.MemberName(name, standing.Generation)] = !standing.Final
	}
	for i, e := range known.jobs {
		known.flow.Settle(i, !unsettled[e.Spec.Name])
	}
	return done, nil
}

// noteIncident stores what a team has decided, before any of it is done.
func (f *Followers) noteIncident(ctx context.Context, id job.BatchID, n workflow.Incident, at time.Time) error {
	value, err := json.Marshal(n)
	if err != nil {
		return err
	}
	r := queue.Record{Space: queue.BatchSpace(id, teamSpace), Key: n.Key(), Value: value, At: at}
	if err := f.store.Apply(ctx, queue.Write{Record: r, Once: true}); err != nil {
		return fmt.Errorf("store what a team has decided: %w", err)
	}
	f.log.Info().Str("batch", string(id)).Str("team", string(n.Team)).Bool("gives_up", n.GivesUp).Msg(n.String())
	f.feed.Tell(n.String())
	return nil
}

// failedSpace is the name of the space of a batch that holds its failed teams.
const failedSpace = "failed teams"

// maxFailedTeams is how many of the latest teams that have failed Status tells of.
const maxFailedTeams = 100

// FailedTeam is a team that gave up, and that is a member of no other.
type FailedTeam struct {
	Team  job.Name    `json:"team"`
	Batch job.BatchID `json:"batch"`
	Why   string      `json:"why"`
	At    time.Time   `json:"at"`
}

// noteFailedTeam stores, once, that a team has failed.
func (f *Followers) noteFailedTeam(ctx context.Context, id job.BatchID, a workflow.FailTeam, at time.Time) error {
	space := queue.BatchSpace(id, failedSpace)
	if _, err := f.store.Record(ctx, space, string(a.Team)); !errors.Is(err, queue.ErrNotFound) {
		return err
	}
	failed := FailedTeam{a.Team, id, a.Why, at}
	value, err := json.Marshal(failed)
	if err != nil {
		return err
	}
	if err := f.store.Apply(ctx, queue.Write{Record: queue.Record{Space: space, Key: string(a.Team), Value: value, At: at}}); err != nil {
		return fmt.Errorf("store that a team has failed: %w", err)
	}
	f.mu.Lock()
	if f.failed = append(f.failed, failed); len(f.failed) > maxFailedTeams {
		f.failed = f.failed[1:]
	}
	f.mu.Unlock()
	f.feed.Tell(fmt.Sprintf("team %s has failed: %s", a.Team, a.Why))
	return nil
}

// failedTeams returns those that have failed lately.
func (f *Followers) failedTeams() []FailedTeam {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.failed)
}

// FailedTeams returns the teams of a batch that have failed.
func FailedTeams(ctx context.Context, journal queue.Journal, id job.BatchID) ([]FailedTeam, error) {
	records, err := journal.Records(ctx, queue.BatchSpace(id, failedSpace), "", letterPage)
	if err != nil {
		return nil, fmt.Errorf("look for failed teams: %w", err)
	}
	list := make([]FailedTeam, len(records))
	for i := range records {
		if err := json.Unmarshal(records[i].Value, &list[i]); err != nil {
			return nil, fmt.Errorf("read failed team %s: %w", records[i].Key, err)
		}
	}
	return list, nil
}

// stopMember ends a member for its team. One that runs is asked to, once, and
// reports its end later.
func (f *Followers) stopMember(ctx context.Context, e *queue.Entry, a workflow.StopMember, at time.Time) (bool, error) {
	switch {
	case e == nil || e.State.Terminal():
		return false, nil
	case e.State == job.Dispatched:
		if !e.CancelRequested {
			return false, f.stopWithin(ctx, e.Batch, e.ID, a.Within.Std(), fmt.Sprintf("stopped by its team %s", a.Team))
		}
		return false, nil
	case e.Held == job.HeldForApproval:
		return true, f.jobs.Cancel(ctx, e.ID)
	}
	why := fmt.Sprintf("stopped by its team %s", a.Team)
	err := f.store.Apply(ctx,
		queue.Keep{ID: e.ID, For: job.HeldForTeam, Waiting: why},
		queue.Conclude{ID: e.ID, Exit: job.ExitCancelled, Now: at})
	if err != nil {
		return false, fmt.Errorf("stop job %s for its team: %w", e.Spec.Name, err)
	}
	f.feed.publishEntry(ctx, e.ID)
	return true, nil
}

// stopWithin stops a job that runs: it is asked for a checkpoint first, if its
// worker can, and has as long to get there. It is called again and again until the
// job has ended.
func (f *Followers) stopWithin(ctx context.Context, batch job.BatchID, id job.ID, within time.Duration, reason string) error {
	until, asked := f.stopBy[id]
	if !asked {
		call, end := context.WithTimeout(ctx, askTime)
		defer end()
		can, err := f.jobs.Checkpoint(call, id, reason)
		if err == nil && can && within > 0 {
			f.stopBy[id] = now().Add(within)
			f.lookLater(batch)
			return nil
		}
	} else if now().Before(until) {
		f.lookLater(batch)
		return nil
	}
	delete(f.stopBy, id)
	return f.jobs.cancel(ctx, id, reason)
}

// restartMember adds the job that does a member again.
func (f *Followers) restartMember(ctx context.Context, id job.BatchID, byName map[job.Name]*queue.Entry, a workflow.RestartMember, at time.Time) error {
	known := byName[a.Job]
	if known == nil {
		return fmt.Errorf("team %s: there is no job %s to restart", a.Team, a.Job)
	}
	first, err := f.store.Get(ctx, known.ID) // with its words
	if err != nil {
		return fmt.Errorf("restart job %s: %w", a.Job, err)
	}
	spec := first.Spec
	spec.Name, spec.Flow.Restart = a.Name(), a.Generation
	e := newEntry(id, spec, at)
	if e.Held == "" {
		e.RunnableAt = at
	}
	ops := []queue.Op{queue.Spawn{Batch: id, Entries: []queue.Entry{e}}}
	if old := byName[workflow.MemberName(a.Job, a.Generation-1)]; old != nil && WaitsForSomebody(old) == nil {
		ops = append(ops, queue.Drop{ID: old.ID, Now: at}) // somebody has looked: its team
	}
	if err := f.store.Apply(ctx, ops...); err != nil {
		return fmt.Errorf("restart job %s: %w", a.Job, err)
	}
	f.feed.observe(Moment{Kind: MomentSubmitted, At: at, Entry: &e})
	f.dispatch()
	return nil
}
