package workflow_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// store is the durable facts, with what an executor of the actions does to them.
type store struct{ facts workflow.TeamFacts }

func newStore(teams []job.Team) *store {
	s := &store{workflow.TeamFacts{Runs: map[job.Name][]workflow.MemberRun{}}}
	for _, t := range teams {
		for _, m := range t.Members {
			if m.Job != "" {
				s.facts.Runs[m.Job] = []workflow.MemberRun{{}}
			}
		}
	}
	return s
}

func (s *store) clone() *store {
	c := &store{workflow.TeamFacts{Runs: maps.Clone(s.facts.Runs), Log: slices.Clone(s.facts.Log)}}
	for name, runs := range c.facts.Runs {
		c.facts.Runs[name] = slices.Clone(runs)
	}
	return c
}

// do carries an action out; stops take their time and are up to the test.
func (s *store) do(a workflow.TeamAction) {
	switch a := a.(type) {
	case workflow.NoteIncident:
		s.facts.Log = append(s.facts.Log, a.Incident)
	case workflow.RestartMember:
		s.facts.Runs[a.Job] = append(s.facts.Runs[a.Job], workflow.MemberRun{Generation: a.Generation})
	}
}

func lasting(a workflow.TeamAction) bool {
	switch a.(type) {
	case workflow.NoteIncident, workflow.RestartMember:
		return false
	}
	return true
}

func (s *store) end(name job.Name, exit workflow.Exit, at time.Time) {
	runs := s.facts.Runs[name]
	for i := range runs {
		if runs[i].Exit == workflow.ExitAlive {
			runs[i].Exit, runs[i].EndedAt = exit, at
		}
	}
}

// answers sorts actions by what they are, written as the oracle writes them.
func answers(actions []workflow.TeamAction) (starts, stops, results []string) {
	for _, a := range actions {
		switch a := a.(type) {
		case workflow.RestartMember:
			starts = append(starts, fmt.Sprintf("%s/%d", a.Job, a.Generation))
		case workflow.StopMember:
			stops = append(stops, fmt.Sprintf("%s/%d", a.Job, a.Generation))
		case workflow.FailTeam:
			results = append(results, fmt.Sprintf("%s %s", a.Team, workflow.ExitShutdown))
		case workflow.TeamDone:
			results = append(results, fmt.Sprintf("%s %s", a.Team, workflow.ExitNormal))
		}
	}
	slices.Sort(stops)
	return starts, stops, results
}

// forests generates teams: up to 2 at the top, nested up to 3 deep.
func forests() *rapid.Generator[[]job.Team] {
	return rapid.Custom(func(t *rapid.T) []job.Team {
		var teams []job.Team
		jobs := 0
		var grow func(depth int) job.Name
		grow = func(depth int) job.Name {
			id := job.Name(fmt.Sprintf("t%d", len(teams)))
			at := len(teams)
			teams = append(teams, job.Team{})
			x := job.Team{
				ID: id, Strategy: rapid.SampledFrom(job.Strategies()).Draw(t, "strategy"),
				MaxRestarts: rapid.IntRange(0, 4).Draw(t, "max_restarts"), MaxSeconds: rapid.IntRange(1, 8).Draw(t, "max_seconds"),
			}
			for range rapid.IntRange(1, 4).Draw(t, "members") {
				m := job.Member{Restart: rapid.SampledFrom(job.RestartTypes()).Draw(t, "restart"), Shutdown: job.DefaultShutdown}
				if depth < 3 && rapid.IntRange(0, 3).Draw(t, "nest") == 0 {
					m.Team = grow(depth + 1)
				} else {
					m.Job = job.Name(fmt.Sprintf("j%d", jobs))
					jobs++
				}
				x.Members = append(x.Members, m)
			}
			teams[at] = x
			return id
		}
		for range rapid.IntRange(1, 2).Draw(t, "tops") {
			grow(1)
		}
		return teams
	})
}

// Whatever ends, in whatever order, at whatever moment of a restart: who is being
// stopped, who is started in which order, and who gives up, is what OTP's
// supervisor does. And whoever crashes after any of the actions gets the rest of
// them when it asks again.
func TestDecideDoesWhatErlangDoesAndGoesOnAfterACrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		teams := forests().Draw(t, "teams")
		tree, erl, s := workflow.NewTeams(teams), newErlang(teams), newStore(teams)
		now := epoch
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			alive := slices.Sorted(maps.Keys(erl.jobs))
			if len(alive) == 0 {
				break
			}
			name := rapid.SampledFrom(alive).Draw(t, "job")
			if aw := erl.awaited(); len(aw) > 0 && rapid.Bool().Draw(t, "a stop ends") {
				stopped, _, _ := strings.Cut(rapid.SampledFrom(aw).Draw(t, "stopped"), "/")
				name = job.Name(stopped)
			}
			exit := rapid.SampledFrom([]workflow.Exit{workflow.ExitAbnormal, workflow.ExitAbnormal, workflow.ExitAbnormal, workflow.ExitNormal, workflow.ExitWithdrawn}).Draw(t, "exit")
			now = now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)

			erl.exit(name, exit, now)
			s.end(name, exit, now)
			actions := tree.Decide(s.facts)

			starts, stops, results := answers(actions)
			same(t, "starts", starts, erl.started)
			same(t, "stops", stops, erl.awaited())
			same(t, "results", results, erl.results())
			crashesAnywhere(t, tree, s, actions)
			for _, a := range actions {
				s.do(a)
			}
			onlyTheLatestRuns(t, s)
			erl.started = nil
		}
	})
}

// onlyTheLatestRuns checks that nothing was started beside an older run of it.
func onlyTheLatestRuns(t *rapid.T, s *store) {
	for name, runs := range s.facts.Runs {
		for i, r := range runs {
			if r.Generation != i || r.Exit == workflow.ExitAlive && i < len(runs)-1 {
				t.Fatalf("%s: the runs are %+v, want each numbered and none alive but the last", name, runs)
			}
		}
	}
}

func same(t interface{ Fatalf(string, ...any) }, what string, got, want []string) {
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, OTP: %v", what, got, want)
	}
}

// crashesAnywhere carries out any first part of the actions and asks again.
func crashesAnywhere(t *rapid.T, tree *workflow.Teams, s *store, actions []workflow.TeamAction) {
	s = s.clone()
	for i := range actions {
		again := tree.Decide(s.clone().facts)
		rest := slices.Clone(actions[:i])
		rest = append(slices.DeleteFunc(rest, func(a workflow.TeamAction) bool { return !lasting(a) }), actions[i:]...)
		if got, want := fmt.Sprintf("%#v", again), fmt.Sprintf("%#v", rest); got != want {
			t.Fatalf("after the first %d of %#v\n got %s\nwant %s", i, actions, got, want)
		}
		s.do(actions[i])
	}
	for _, a := range tree.Decide(s.facts) {
		if !lasting(a) {
			t.Fatalf("all was carried out, and it still decides %#v", a)
		}
	}
}
