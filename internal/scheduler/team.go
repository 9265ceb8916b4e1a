package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow"
	"github.com/agentsched/agentsched/workflow/team"
)

// teamSpace is the name of the space of a batch that holds what its teams have
// decided.
const teamSpace = "teams"

// teamsOf returns the tree of a batch's teams; nil if it has none.
func (s *Scheduler) teamsOf(id job.BatchID, w *job.Workflow) (*team.Tree, error) {
	if t := s.flows.teams[id]; t != nil || len(w.Teams) == 0 {
		return t, nil
	}
	t, err := team.New(w.Teams)
	if err != nil {
		return nil, fmt.Errorf("read the teams of workflow %s: %w", id, err)
	}
	s.flows.teams[id] = t
	return t, nil
}

// teamFacts returns what is durable about the members of teams.
func (s *Scheduler) teamFacts(ctx context.Context, id job.BatchID, entries []queue.Entry) (team.Facts, error) {
	f := team.Facts{Runs: map[job.Name][]team.Run{}}
	for i := range entries {
		e := &entries[i]
		name, _, _ := strings.Cut(string(e.Spec.Name), "+")
		if e.Spec.Flow.Node != "" {
			continue
		}
		r := team.Run{Generation: e.Spec.Flow.Restart, Exit: team.ExitOf(e.State, e.ExitKind)}
		if e.CompletedAt != nil {
			r.EndedAt = *e.CompletedAt
		}
		f.Runs[job.Name(name)] = append(f.Runs[job.Name(name)], r)
	}
	journal, ok := s.cfg.Store.(queue.Journal)
	if !ok {
		return f, nil
	}
	for after := ""; ; {
		page, err := journal.Records(ctx, queue.BatchSpace(id, teamSpace), after, letterPage)
		if err != nil {
			return f, fmt.Errorf("read what the teams of workflow %s have decided: %w", id, err)
		}
		for i := range page {
			var n team.Incident
			if err := json.Unmarshal(page[i].Value, &n); err != nil {
				return f, fmt.Errorf("read decision %s of the teams of workflow %s: %w", page[i].Key, id, err)
			}
			f.Log, after = append(f.Log, n), page[i].Key
		}
		if len(page) < letterPage {
			return f, nil
		}
	}
}

// superviseTeams does what the teams of a batch want next. It reports whether
// something was done, and which ends of members are not final.
func (s *Scheduler) superviseTeams(ctx context.Context, id job.BatchID, w *job.Workflow, entries []queue.Entry, byName map[job.Name]*queue.Entry) (done bool, unsettled map[job.Name]bool, err error) {
	tree, err := s.teamsOf(id, w)
	if tree == nil || err != nil {
		return false, nil, err
	}
	facts, err := s.teamFacts(ctx, id, entries)
	if err != nil {
		return false, nil, err
	}
	at := now()
	for _, a := range tree.Decide(facts) {
		var did bool
		switch a := a.(type) {
		case team.Note:
			did, err = true, s.noteIncident(ctx, id, a.Incident, at)
		case team.Stop:
			did, err = s.stopMember(ctx, byName[a.Name()], a, at)
		case team.Restart:
			did, err = true, s.restartMember(ctx, id, byName, a, at)
		case team.Fail:
			err = s.noteFailedTeam(ctx, id, a, at)
		}
		if err != nil {
			return false, nil, err
		}
		done = done || did
	}
	unsettled = map[job.Name]bool{}
	for name, standing := range tree.Standings(facts) {
		unsettled[team.RunName(name, standing.Generation)] = !standing.Final
	}
	return done, unsettled, nil
}

// noteIncident stores what a team has decided, before any of it is done.
func (s *Scheduler) noteIncident(ctx context.Context, id job.BatchID, n team.Incident, at time.Time) error {
	value, err := json.Marshal(n)
	if err != nil {
		return err
	}
	r := queue.Record{Space: queue.BatchSpace(id, teamSpace), Key: n.Key(), Value: value, At: at}
	if err := s.cfg.Store.Apply(ctx, queue.Write{Record: r, Once: true}); err != nil {
		return fmt.Errorf("store what a team has decided: %w", err)
	}
	s.cfg.Log.Info().Str("batch", string(id)).Str("team", string(n.Team)).Bool("gives_up", n.GivesUp).Msg(n.String())
	s.Tell(n.String())
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
func (s *Scheduler) noteFailedTeam(ctx context.Context, id job.BatchID, a team.Fail, at time.Time) error {
	journal, ok := s.cfg.Store.(queue.Journal)
	if !ok {
		return nil
	}
	space := queue.BatchSpace(id, failedSpace)
	if _, err := journal.Record(ctx, space, string(a.Team)); !errors.Is(err, queue.ErrNotFound) {
		return err
	}
	f := FailedTeam{a.Team, id, a.Why, at}
	value, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.Apply(ctx, queue.Write{Record: queue.Record{Space: space, Key: string(a.Team), Value: value, At: at}}); err != nil {
		return fmt.Errorf("store that a team has failed: %w", err)
	}
	s.mu.Lock()
	if s.failedTeams = append(s.failedTeams, f); len(s.failedTeams) > maxFailedTeams {
		s.failedTeams = s.failedTeams[1:]
	}
	s.mu.Unlock()
	s.Tell(fmt.Sprintf("team %s has failed: %s", a.Team, a.Why))
	return nil
}

// FailedTeams returns the teams of a batch that have failed.
func FailedTeams(ctx context.Context, store queue.Store, id job.BatchID) ([]FailedTeam, error) {
	journal, ok := store.(queue.Journal)
	if !ok {
		return nil, nil
	}
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
func (s *Scheduler) stopMember(ctx context.Context, e *queue.Entry, a team.Stop, at time.Time) (bool, error) {
	switch {
	case e == nil || e.State.Terminal():
		return false, nil
	case e.State == job.Dispatched:
		if !e.CancelRequested {
			return false, s.stopWithin(ctx, e.Batch, e.ID, a.Within.Std(), fmt.Sprintf("stopped by its team %s", a.Team))
		}
		return false, nil
	case e.Held == job.HeldForApproval:
		return true, s.Cancel(ctx, e.ID)
	}
	why := fmt.Sprintf("stopped by its team %s", a.Team)
	err := s.cfg.Store.Apply(ctx,
		queue.Keep{ID: e.ID, For: job.HeldForTeam, Waiting: why},
		queue.Conclude{ID: e.ID, Exit: job.ExitCancelled, Now: at})
	if err != nil {
		return false, fmt.Errorf("stop job %s for its team: %w", e.Spec.Name, err)
	}
	s.lanes.touch(e, s.scopes())
	s.publishEntry(ctx, e.ID)
	return true, nil
}

// stopWithin stops a job that runs: it is asked for a checkpoint first, if its
// worker can, and has as long to get there. It is called again and again until the
// job has ended.
func (s *Scheduler) stopWithin(ctx context.Context, batch job.BatchID, id job.ID, within time.Duration, reason string) error {
	until, asked := s.flows.stopBy[id]
	if !asked {
		call, end := context.WithTimeout(ctx, askTime)
		defer end()
		can, err := s.Checkpoint(call, id, reason)
		if err == nil && can && within > 0 {
			s.flows.stopBy[id] = now().Add(within)
			s.flows.lookLater(batch)
			return nil
		}
	} else if now().Before(until) {
		s.flows.lookLater(batch)
		return nil
	}
	delete(s.flows.stopBy, id)
	return s.cancel(ctx, id, reason)
}

// restartMember adds the job that does a member again.
func (s *Scheduler) restartMember(ctx context.Context, id job.BatchID, byName map[job.Name]*queue.Entry, a team.Restart, at time.Time) error {
	first := byName[a.Job]
	if first == nil {
		return fmt.Errorf("team %s: there is no job %s to restart", a.Team, a.Job)
	}
	spec := first.Spec
	spec.Name, spec.Flow.Restart = a.Name(), a.Generation
	e := newEntry(id, spec, at)
	if e.Held == "" {
		e.RunnableAt = at
	}
	ops := []queue.Op{queue.Spawn{Batch: id, Entries: []queue.Entry{e}}}
	if old := byName[team.RunName(a.Job, a.Generation-1)]; old != nil && WaitsForSomebody(old) == nil {
		ops = append(ops, queue.Drop{ID: old.ID, Now: at}) // somebody has looked: its team
	}
	if err := s.cfg.Store.Apply(ctx, ops...); err != nil {
		return fmt.Errorf("restart job %s: %w", a.Job, err)
	}
	s.observe(Moment{Kind: MomentSubmitted, At: at, Entry: &e})
	s.lanes.touch(&e, s.scopes())
	s.poke()
	return nil
}

// markUnsettled notes which ends a team may yet undo.
func markUnsettled(b *workflow.Batch, unsettled map[job.Name]bool) {
	for i := range b.Jobs {
		if unsettled[b.Jobs[i].Spec.Name] {
			b.Jobs[i].Unsettled = true
		}
	}
}
