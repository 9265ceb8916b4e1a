package team_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/team"
)

func TestTeamsThatCannotBeAreRefusedWithWhatWouldBeRight(t *testing.T) {
	for _, c := range []struct {
		name  string
		teams []string
		want  string
	}{
		{"strategy", []string{"t one_by_one 1/5: a permanent"}, `team "t": strategy "one_by_one" is unknown, want one_for_one, one_for_all or rest_for_one`},
		{"max_restarts", []string{"t one_for_one -1/5: a permanent"}, `team "t": max_restarts -1 is negative, want 0 or more`},
		{"max_seconds", []string{"t one_for_one 1/0: a permanent"}, `team "t": max_seconds 0 is too short, want 1 or more`},
		{"restart", []string{"t one_for_one 1/5: a always"}, `team "t": members[0]: restart "always" is unknown, want permanent, transient or temporary`},
		{"two ids", []string{"t one_for_one 1/5: a permanent", "t one_for_one 1/5: b permanent"}, `team "t": there are two of this id, want another for one of them`},
		{"no team", []string{"t one_for_one 1/5: (u) permanent"}, `team "t": members[0]: there is no team "u", want the id of another team`},
		{"job twice", []string{"t one_for_one 1/5: a permanent", "u one_for_one 1/5: b permanent, a permanent"}, `team "u": members[1]: the job "a" is a member of the team "t" already, want it in one`},
		{"team twice", []string{"t one_for_one 1/5: (v) permanent", "u one_for_one 1/5: (v) permanent", "v one_for_one 1/5: a permanent"}, `team "u": members[0]: the team "v" is a member of the team "t" already, want it in one`},
		{"one name", []string{"t one_for_one 1/5: u permanent", "u one_for_one 1/5: a permanent"}, `team "t": members[0]: the job "u" has the name of a team, want names of their own`},
		{"circle", []string{"t one_for_one 1/5: a permanent, (u) permanent", "u one_for_one 1/5: (v) permanent", "v one_for_one 1/5: (t) permanent"}, `team "t": is a member of itself (t > u > v > t), want teams nested without a circle`},
		{"itself", []string{"t one_for_one 1/5: (t) permanent"}, `team "t": is a member of itself (t > t), want teams nested without a circle`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := team.New(parse(t, c.teams...))
			if err == nil || err.Error() != c.want {
				t.Fatalf("got %v, want %s", err, c.want)
			}
		})
	}
	for want, x := range map[string]job.Team{
		"has no members": {ID: "t", Strategy: job.OneForOne, MaxSeconds: 5},
		`members[0] names the job "a" and the team "u", want exactly one`: {
			ID: "t", Strategy: job.OneForOne, MaxSeconds: 5, Members: []job.Member{{Job: "a", Team: "u", Restart: job.Permanent}}},
	} {
		if _, err := team.New([]job.Team{x}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say: %s", err, want)
		}
	}
}

func TestEveryEndOfAQueueEntryIsAnExit(t *testing.T) {
	for _, state := range job.EntryStates() {
		for _, exit := range []job.ExitKind{"", job.ExitSucceeded, job.ExitFailed, job.ExitCancelled} {
			got, want := team.ExitOf(state, exit), team.Abnormal
			switch {
			case state == job.Queued, state == job.Dispatched:
				want = team.Alive
			case state == job.Cancelled, state == job.Completed && exit == job.ExitCancelled:
				want = team.Withdrawn
			case state == job.Completed && exit == job.ExitSucceeded:
				want = team.Normal
			}
			if got != want {
				t.Errorf("%s %s is %q, want %q", state, exit, got, want)
			}
		}
	}
}

func TestStandingsSayWhichRunToWaitFor(t *testing.T) {
	teams := parse(t, "t one_for_all 1/5: a transient, b transient, c temporary")
	tree, s := mustTree(t, teams), newStore(teams)
	check := func(when string, want map[job.Name]team.Standing) {
		t.Helper()
		got := tree.Standings(s.facts)
		for name, w := range want {
			if got[name] != w {
				t.Fatalf("%s: %s is %+v, want %+v", when, name, got[name], w)
			}
		}
	}
	end := func(name job.Name, exit team.Exit, seconds int) {
		s.end(name, exit, epoch.Add(time.Duration(seconds)*time.Second))
	}
	check("at first", map[job.Name]team.Standing{"a": {0, false}, "b": {0, false}, "c": {0, false}})
	end("a", team.Normal, 1)
	check("a succeeded", map[job.Name]team.Standing{"a": {0, true}})
	end("b", team.Abnormal, 2)
	check("b failed, c is to be stopped", map[job.Name]team.Standing{"a": {0, false}, "b": {0, false}, "c": {0, false}})
	for _, a := range tree.Decide(s.facts) {
		s.do(a)
	}
	end("c", team.Withdrawn, 3)
	check("c was stopped", map[job.Name]team.Standing{"a": {1, false}, "b": {1, false}, "c": {0, true}})
	for _, a := range tree.Decide(s.facts) {
		s.do(a)
	}
	end("b", team.Abnormal, 4)
	check("b failed again, a is to be stopped", map[job.Name]team.Standing{"a": {1, false}, "b": {1, false}})
	end("a", team.Withdrawn, 5)
	check("the team gave up", map[job.Name]team.Standing{"a": {1, true}, "b": {1, true}, "c": {0, true}})
}

func TestALogOfAnotherWorkflowChangesNothing(t *testing.T) {
	teams := parse(t, "t one_for_one 0/5: a transient")
	tree, s := mustTree(t, teams), newStore(teams)
	s.facts.Log = []team.Incident{
		{N: 1, Team: "elsewhere", Member: "a", At: epoch, GivesUp: true},
		{N: 2, Team: "t", Member: "elsewhere", At: epoch, GivesUp: true},
	}
	if got := tree.Decide(s.facts); len(got) != 0 {
		t.Fatalf("got %#v, want nothing", got)
	}
}

func TestRunNames(t *testing.T) {
	got := []job.Name{team.RunName("fix", 0), team.Stop{Job: "fix", Generation: 2}.Name(), team.Restart{Job: "fix", Generation: 3}.Name()}
	if want := []job.Name{"fix", "fix+2", "fix+3"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
