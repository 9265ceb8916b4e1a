package workflow_test

import (
	"slices"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

func TestEveryEndOfAQueueEntryIsAnExit(t *testing.T) {
	for _, state := range job.EntryStates() {
		for _, exit := range []job.ExitKind{"", job.ExitSucceeded, job.ExitFailed, job.ExitCancelled} {
			got, want := workflow.ExitOf(state, exit), workflow.ExitAbnormal
			switch {
			case state == job.Queued, state == job.Dispatched:
				want = workflow.ExitAlive
			case state == job.Cancelled, state == job.Completed && exit == job.ExitCancelled:
				want = workflow.ExitWithdrawn
			case state == job.Completed && exit == job.ExitSucceeded:
				want = workflow.ExitNormal
			}
			if got != want {
				t.Errorf("%s %s is %q, want %q", state, exit, got, want)
			}
		}
	}
}

func TestStandingsSayWhichRunToWaitFor(t *testing.T) {
	teams := parse(t, "t one_for_all 1/5: a transient, b transient, c temporary")
	tree, s := workflow.NewTeams(teams), newStore(teams)
	check := func(when string, want map[job.Name]workflow.MemberStanding) {
		t.Helper()
		got := tree.Standings(s.facts)
		for name, w := range want {
			if got[name] != w {
				t.Fatalf("%s: %s is %+v, want %+v", when, name, got[name], w)
			}
		}
	}
	end := func(name job.Name, exit workflow.Exit, seconds int) {
		s.end(name, exit, epoch.Add(time.Duration(seconds)*time.Second))
	}
	check("at first", map[job.Name]workflow.MemberStanding{"a": {0, false}, "b": {0, false}, "c": {0, false}})
	end("a", workflow.ExitNormal, 1)
	check("a succeeded", map[job.Name]workflow.MemberStanding{"a": {0, true}})
	end("b", workflow.ExitAbnormal, 2)
	check("b failed, c is to be stopped", map[job.Name]workflow.MemberStanding{"a": {0, false}, "b": {0, false}, "c": {0, false}})
	for _, a := range tree.Decide(s.facts) {
		s.do(a)
	}
	end("c", workflow.ExitWithdrawn, 3)
	check("c was stopped", map[job.Name]workflow.MemberStanding{"a": {1, false}, "b": {1, false}, "c": {0, true}})
	for _, a := range tree.Decide(s.facts) {
		s.do(a)
	}
	end("b", workflow.ExitAbnormal, 4)
	check("b failed again, a is to be stopped", map[job.Name]workflow.MemberStanding{"a": {1, false}, "b": {1, false}})
	end("a", workflow.ExitWithdrawn, 5)
	check("the team gave up", map[job.Name]workflow.MemberStanding{"a": {1, true}, "b": {1, true}, "c": {0, true}})
}

func TestALogOfAnotherWorkflowChangesNothing(t *testing.T) {
	teams := parse(t, "t one_for_one 0/5: a transient")
	tree, s := workflow.NewTeams(teams), newStore(teams)
	s.facts.Log = []workflow.Incident{
		{N: 1, Team: "elsewhere", Member: "a", At: epoch, GivesUp: true},
		{N: 2, Team: "t", Member: "elsewhere", At: epoch, GivesUp: true},
	}
	if got := tree.Decide(s.facts); len(got) != 0 {
		t.Fatalf("got %#v, want nothing", got)
	}
}

func TestRunNames(t *testing.T) {
	got := []job.Name{workflow.MemberName("fix", 0), workflow.StopMember{Job: "fix", Generation: 2}.Name(), workflow.RestartMember{Job: "fix", Generation: 3}.Name()}
	if want := []job.Name{"fix", "fix+2", "fix+3"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
