package workflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

// parse reads a team: "t one_for_all 1/5: a permanent, b transient, (u) temporary"
// is a team with 1 restart in 5 s, of two jobs and a team.
func parse(t *testing.T, lines ...string) []job.Team {
	t.Helper()
	var teams []job.Team
	for _, line := range lines {
		head, members, _ := strings.Cut(line, ": ")
		x := job.Team{}
		if _, err := fmt.Sscanf(head, "%s %s %d/%d", &x.ID, &x.Strategy, &x.MaxRestarts, &x.MaxSeconds); err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		for m := range strings.SplitSeq(members, ", ") {
			name, restart, _ := strings.Cut(m, " ")
			member := job.Member{Restart: job.RestartType(restart), Shutdown: job.DefaultShutdown}
			if inner, ok := strings.CutPrefix(name, "("); ok {
				member.Team = job.Name(strings.TrimSuffix(inner, ")"))
			} else {
				member.Job = job.Name(name)
			}
			x.Members = append(x.Members, member)
		}
		teams = append(teams, x)
	}
	return teams
}

func say(actions []workflow.TeamAction) string {
	var words []string
	for _, a := range actions {
		switch a := a.(type) {
		case workflow.NoteIncident:
			if a.Incident.GivesUp {
				words = append(words, fmt.Sprintf("%s gives up", a.Incident.Team))
			}
		case workflow.StopMember:
			words = append(words, "stop "+string(a.Name()))
		case workflow.RestartMember:
			words = append(words, "start "+string(a.Name()))
		case workflow.FailTeam:
			words = append(words, string(a.Team)+" failed")
		case workflow.TeamDone:
			words = append(words, string(a.Team)+" done")
		}
	}
	return strings.Join(words, ", ")
}

// play lets the runs end as told ("2.5 b abnormal" is after 2.5 s), one after the
// other, each followed by what is then to be done.
func play(t *testing.T, teams []job.Team, script ...string) {
	t.Helper()
	tree, s := workflow.NewTeams(teams), newStore(teams)
	for _, line := range script {
		event, want, _ := strings.Cut(line, " -> ")
		for e := range strings.SplitSeq(event, "; ") {
			var at float64
			var name job.Name
			var exit workflow.Exit
			if _, err := fmt.Sscanf(e, "%f %s %s", &at, &name, &exit); err != nil {
				t.Fatalf("%q: %v", e, err)
			}
			s.end(name, exit, epoch.Add(time.Duration(at*float64(time.Second))))
		}
		actions := tree.Decide(s.facts)
		if got := say(actions); got != want {
			t.Fatalf("after %q: %q, want %q", event, got, want)
		}
		for _, a := range actions {
			s.do(a)
		}
	}
}

// Each name or rule is a sentence of OTP 27's documentation of `supervisor`, or of
// "Supervisor Behaviour" in its Design Principles (the latter marked DP).
func TestWhatTheDocumentationOfOTPSays(t *testing.T) {
	for _, c := range []struct {
		rule   string
		teams  []string
		script []string
	}{
		{
			"one_for_one: if one child process terminates and is to be restarted, only that child process is affected",
			[]string{"t one_for_one 1/5: a permanent, b permanent, c permanent"},
			[]string{"1 b abnormal -> start b+1"},
		},
		{
			"one_for_all: all other child processes are terminated and then all child processes are restarted",
			[]string{"t one_for_all 1/5: a permanent, b permanent, c permanent"},
			[]string{"1 b abnormal -> stop c", "2 c withdrawn -> stop a", "3 a withdrawn -> start a+1, start b+1, start c+1"},
		},
		{
			"rest_for_one: the rest, the child processes after it in the start order, are terminated; then it and they are restarted",
			[]string{"t rest_for_one 1/5: a permanent, b permanent, c permanent, d permanent"},
			[]string{"1 b abnormal -> stop d", "2 d withdrawn -> stop c", "3 c withdrawn -> start b+1, start c+1, start d+1"},
		},
		{
			"DP: the child processes are started in the order of the list, and are terminated in the reverse order",
			[]string{"t rest_for_one 1/5: a permanent, b permanent, c permanent, d permanent"},
			[]string{
				"1 a abnormal -> stop d", "2 d withdrawn -> stop c", "3 c withdrawn -> stop b",
				"4 b withdrawn -> start a+1, start b+1, start c+1, start d+1",
			},
		},
		{
			"a child that is told to stop ends as it likes: terminate_children looks at the reason only to report it",
			[]string{"t one_for_all 1/5: a transient, b transient, c temporary"},
			[]string{"1 a abnormal -> stop c", "2 c abnormal -> stop b", "3 b normal -> start a+1, start b+1"},
		},
		{
			"a child that has ended by itself meanwhile is not stopped, nor its end counted (unlink_flush)",
			[]string{"t one_for_all 1/5: a permanent, b permanent, c permanent"},
			[]string{"1 b abnormal -> stop c", "2 a abnormal -> stop c", "3 c withdrawn -> start a+1, start b+1, start c+1"},
		},
		{
			"a permanent child process is always restarted",
			[]string{"t one_for_one 1/5: a permanent, b permanent"},
			[]string{"1 b normal -> start b+1", "2 b normal -> t gives up, stop a", "3 a withdrawn -> t failed"},
		},
		{
			"a temporary child process is never restarted",
			[]string{"t one_for_all 0/5: a temporary, b transient"},
			[]string{"1 a abnormal -> ", "2 b normal -> t done"},
		},
		{
			"a temporary child is never restarted, even when the strategy is one_for_all and a sibling's death causes it to be terminated",
			[]string{"t one_for_all 1/5: a permanent, b temporary, c temporary"},
			[]string{"1 a abnormal -> stop c", "2 c withdrawn -> stop b", "3 b withdrawn -> start a+1"},
		},
		{
			"a temporary child is never restarted, even when the strategy is rest_for_one and a sibling's death causes it to be terminated",
			[]string{"t rest_for_one 2/5: a permanent, b temporary, c permanent"},
			[]string{"1 a abnormal -> stop c", "2 c withdrawn -> stop b", "3 b withdrawn -> start a+1, start c+1", "3.5 a abnormal -> stop c+1"},
		},
		{
			"a transient child process is restarted only if it terminates abnormally, that is, not with normal",
			[]string{"t one_for_one 1/5: a transient, b transient"},
			[]string{"1 a normal -> ", "2 b abnormal -> start b+1", "3 b normal -> t done"},
		},
		{
			"a transient child process is restarted only if it terminates abnormally, that is, not with shutdown",
			[]string{"p one_for_one 5/5: a permanent, (t) transient", "t one_for_one 0/5: b permanent"},
			[]string{"1 b abnormal -> t gives up", "2 a abnormal -> start a+1"},
		},
		{
			"del_child keeps the specification of a transient child that ended normally: a sibling's restart starts it again",
			[]string{"t one_for_all 1/5: a transient, b transient"},
			[]string{"1 a normal -> ", "2 b abnormal -> start a+1, start b+1"},
		},
		{
			"a restart of several counts once: add_restart is called once for each end",
			[]string{"t one_for_all 1/5: a permanent, b permanent, c permanent"},
			[]string{"1 b abnormal -> stop c", "2 c withdrawn -> stop a", "3 a withdrawn -> start a+1, start b+1, start c+1"},
		},
		{
			"if more than MaxR restarts occur within MaxT seconds, the supervisor terminates all child processes and then itself",
			[]string{"t one_for_one 2/5: a permanent, b permanent, c temporary"},
			[]string{
				"1 b abnormal -> start b+1", "2 b abnormal -> start b+2", "3 b abnormal -> t gives up, stop c",
				"4 c withdrawn -> stop a", "5 a withdrawn -> t failed",
			},
		},
		{
			"restarts of all children count together",
			[]string{"t one_for_one 1/5: a permanent, b permanent"},
			[]string{"1 a abnormal -> start a+1", "2 b abnormal -> t gives up, stop a+1", "3 a withdrawn -> t failed"},
		},
		{
			"a restart exactly MaxT seconds ago still counts (R >= Now - Period)",
			[]string{"t one_for_one 1/5: a permanent"},
			[]string{"1 a abnormal -> start a+1", "6 a abnormal -> t gives up, t failed"},
		},
		{
			"one longer ago does not",
			[]string{"t one_for_one 1/5: a permanent"},
			[]string{"1 a abnormal -> start a+1", "7 a abnormal -> start a+2", "13 a abnormal -> start a+3"},
		},
		{
			"time is counted in whole seconds (erlang:monotonic_time(1))",
			[]string{"t one_for_one 1/5: a permanent"},
			[]string{"1.0 a abnormal -> start a+1", "6.9 a abnormal -> t gives up, t failed"},
		},
		{
			"an intensity of 0 allows no restart",
			[]string{"t one_for_one 0/1: a transient, b temporary"},
			[]string{"1 a abnormal -> t gives up, stop b", "2 b normal -> t failed"},
		},
		{
			"DP: when the supervisor terminates, the next higher-level supervisor takes some action: it restarts the terminated supervisor",
			[]string{"p one_for_one 1/5: a permanent, (t) permanent", "t one_for_one 0/5: b permanent, c permanent"},
			[]string{"1 b abnormal -> t gives up, stop c", "2 c withdrawn -> start b+1, start c+1"},
		},
		{
			"DP: or terminates itself",
			[]string{"p one_for_one 0/5: a permanent, (t) permanent", "t one_for_one 0/5: b permanent"},
			[]string{"1 b abnormal -> t gives up, p gives up, stop a", "2 a withdrawn -> p failed"},
		},
		{
			"a supervisor that terminated restarts nobody, and none of its children's supervisors does",
			[]string{"p one_for_one 0/5: a permanent, (t) permanent", "t one_for_one 1/5: b permanent"},
			[]string{"1 a abnormal -> p gives up, stop b", "2 b abnormal -> p failed"},
		},
		{
			"a temporary supervisor that gave up is not restarted",
			[]string{"p one_for_all 0/5: a transient, (t) temporary", "t one_for_one 0/5: b permanent"},
			[]string{"1 b abnormal -> t gives up", "2 a normal -> p done"},
		},
		{
			"a supervisor that is restarted has a new state: no restarts are counted, and its temporary children are back",
			[]string{"p one_for_all 1/60: a permanent, (t) permanent", "t one_for_all 1/60: b permanent, c temporary"},
			[]string{
				"1 b abnormal -> stop c", "2 c withdrawn -> start b+1",
				"3 a abnormal -> stop b+1", "4 b withdrawn -> start a+1, start b+2, start c+1",
				"5 b abnormal -> stop c+1", "6 c withdrawn -> start b+3",
			},
		},
		{
			"a supervisor that is stopped stops its own children first, in the reverse order",
			[]string{"p rest_for_one 1/5: a permanent, (t) permanent, d permanent", "t one_for_one 0/5: b permanent, c permanent"},
			[]string{
				"1 a abnormal -> stop d", "2 d withdrawn -> stop c", "3 c withdrawn -> stop b",
				"4 b withdrawn -> start a+1, start b+1, start c+1, start d+1",
			},
		},
		{
			"supervisors are processes of their own: one restarts while its neighbour waits for a child to end",
			[]string{"p one_for_one 1/5: (t) permanent, (u) permanent", "t one_for_all 1/5: a permanent, b permanent", "u one_for_one 1/5: c permanent"},
			[]string{"1 a abnormal -> stop b", "2 c abnormal -> start c+1, stop b", "3 b withdrawn -> start a+1, start b+1"},
		},
		{
			"signals are handled in the order of their arrival",
			[]string{"t rest_for_one 1/5: a permanent, b permanent, c permanent"},
			[]string{"1 b abnormal -> stop c", "2 a abnormal -> stop c", "3 c withdrawn -> start b+1, start c+1, t gives up, stop c+1"},
		},
		{
			"terminate_child: the process is terminated and, unless it is a temporary child, the specification is kept; it can later be restarted",
			[]string{"t one_for_all 1/5: a permanent, b permanent"},
			[]string{"1 a withdrawn -> ", "2 b abnormal -> start a+1, start b+1"},
		},
		{
			"ours: a team ends when all members have, and none is to be restarted",
			[]string{"p one_for_one 1/5: (t) transient, a transient", "t one_for_one 1/5: b transient, c temporary"},
			[]string{"1 b normal -> ", "2 c abnormal -> ", "3 a normal -> p done"},
		},
		{
			"ours: such an end is a normal one, so that a permanent team is done again",
			[]string{"p one_for_one 1/5: (t) permanent", "t one_for_one 1/5: b transient"},
			[]string{"1 b normal -> start b+1", "2 b normal -> p gives up, p failed"},
		},
		{
			"ours: a team that is about to be stopped restarts nobody any more",
			[]string{"p one_for_all 1/5: (t) permanent, a permanent, c permanent", "t one_for_one 1/5: b permanent"},
			[]string{"1 a abnormal -> stop c", "2 b abnormal -> stop c", "3 c withdrawn -> start b+1, start a+1, start c+1"},
		},
	} {
		t.Run(c.rule, func(t *testing.T) { play(t, parse(t, c.teams...), c.script...) })
	}
}

func TestWhatWasMissedIsHandledInTheOrderOfItsTime(t *testing.T) {
	teams := parse(t, "t one_for_one 3/60: a permanent, b permanent, c transient")
	play(t, teams, "5 c abnormal; 3 b abnormal; 4 a normal -> start b+1, start a+1, start c+1")
}

func TestAnEndThatIsLearnedOfLateDoesNotTurnTheClockBack(t *testing.T) {
	teams := parse(t, "t one_for_one 2/5: a permanent, b permanent")
	tree, s := workflow.NewTeams(teams), newStore(teams)
	for _, e := range []struct {
		name job.Name
		at   time.Duration
	}{{"a", 10 * time.Second}, {"b", 9 * time.Second}} {
		s.end(e.name, workflow.ExitAbnormal, epoch.Add(e.at))
		for _, a := range tree.Decide(s.facts) {
			s.do(a)
		}
	}
	if got, want := s.facts.Log[1].At, s.facts.Log[0].At; !got.Equal(want) {
		t.Fatalf("the second incident is at %s, want %s, the time of the first", got, want)
	}
}

func TestStopsSayHowLongTheyMayTake(t *testing.T) {
	teams := parse(t, "t one_for_all 1/5: a permanent, b permanent")
	teams[0].Members[1].Shutdown = job.Duration(7 * time.Second)
	tree, s := workflow.NewTeams(teams), newStore(teams)
	s.end("a", workflow.ExitAbnormal, epoch)
	actions := tree.Decide(s.facts)
	want := workflow.StopMember{Team: "t", Job: "b", Generation: 0, Within: job.Duration(7 * time.Second)}
	if len(actions) != 2 || actions[1] != want {
		t.Fatalf("got %#v, want a note and %#v", actions, want)
	}
}

// What is noted is all that the store has to keep: read back, it gives the same
// answers.
func TestIncidentsAreKeptAsJSON(t *testing.T) {
	teams := parse(t, "t one_for_all 1/5: a permanent, (u) permanent, b temporary", "u one_for_one 1/5: c temporary, d permanent")
	tree, s := workflow.NewTeams(teams), newStore(teams)
	s.end("a", workflow.ExitAbnormal, epoch.Add(time.Second/2))
	s.do(tree.Decide(s.facts)[0])

	text, err := json.Marshal(s.facts.Log)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"n":1,"team":"t","member":"a","at":"2026-03-01T12:00:00.5Z","starts":{"a":1,"c":1,"d":1}}]`
	if string(text) != want {
		t.Fatalf("got %s, want %s", text, want)
	}
	if got, want := s.facts.Log[0].String(), "a has ended: the team t restarts a+1, c+1, d+1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (workflow.Incident{Team: "t", Member: "a", GivesUp: true}).String(), "a has ended: the team t gives up"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if nine, ten := (workflow.Incident{N: 9}).Key(), (workflow.Incident{N: 10}).Key(); nine >= ten {
		t.Errorf("the key of the ninth, %q, is not before that of the tenth, %q", nine, ten)
	}
	before := say(tree.Decide(s.facts))
	s.facts.Log = nil
	if err := json.Unmarshal(text, &s.facts.Log); err != nil {
		t.Fatal(err)
	}
	if after := say(tree.Decide(s.facts)); after != before || after != "stop b" {
		t.Fatalf("got %q, before %q, want %q", after, before, "stop b")
	}
}

func TestFailSaysWhy(t *testing.T) {
	teams := parse(t, "t one_for_one 0/5: a transient")
	tree, s := workflow.NewTeams(teams), newStore(teams)
	s.end("a", workflow.ExitAbnormal, epoch)
	actions := tree.Decide(s.facts)
	want := workflow.FailTeam{Team: "t", Why: "the team t gave up: a ended again at 2026-03-01T12:00:00Z, and more than 0 restarts within 5 s are not allowed"}
	if len(actions) != 2 || actions[1] != want {
		t.Fatalf("got %#v, want a note and %#v", actions, want)
	}
}
