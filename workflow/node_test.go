package workflow_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

func TestForEach(t *testing.T) {
	list, fan, sum := spec("list"), spec("fan", "list"), spec("sum", "fan")
	list.Output = json.RawMessage(`{}`)
	fan.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`"${{ jobs.list.output }}"`), MaxParallel: 2}
	fan.Key, fan.OnDuplicate = "k", job.Reject
	fan.Instructions = "scan ${{ item.path }} (${{ index }})"
	sum.Instructions = "join ${{ join(jobs.fan.output, ' + ') }} of ${{ join(jobs.fan.files, ' ') }}"
	sum.Flow.From = []job.Name{"fan"}
	for name, c := range map[string]struct {
		items string
		fail  job.Name
		end   job.ExitKind
		want  string // of sum's instructions or fan's message
	}{
		"all":       {`[{"path":"a"},{"path":"${{ 1 }}"},{"path":"c"}]`, "", "", "join did scan a (0) + did scan ${{ 1 }} (1) + did scan c (2) of all fan@1 fan@2 fan@3"},
		"one fails": {`[{"path":"a"},{"path":"b"}]`, "fan@2", job.ExitFailed, "part fan@2 (2 of 2) failed: broke"},
		"one stops": {`[{"path":"a"},{"path":"b"}]`, "fan@1", job.ExitCancelled, ""},
		"none":      {`[]`, "", "", "join  of "},
		"no list":   {`{"a":1}`, "", "", "for_each.items: ${{ jobs.list.output }} gives an object, want a list"},
		"too many":  {`[` + strings.Repeat(`1,`, 100) + `1]`, "", "", "for_each.items: has 101 items, at most 100 are allowed (for_each.max)"},
		"too long":  {`[{"path":"` + strings.Repeat("x", workflow.MaxText) + `"}]`, "", "", "item 1: instructions: has more than 262144 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld([]job.Spec{list, fan, sum}, nil)
			w.outcome = func(j *workflow.Job) {
				j.Files, j.Patch = []string{"all", string(j.Spec.Name)}, "/"+string(j.Spec.Name)
				switch {
				case j.Spec.Name == "list":
					j.Output = json.RawMessage(c.items)
				case j.Spec.Name == c.fail:
					j.Exit, j.Message, j.Class, j.Output = c.end, "broke", job.VerifyFailed, nil
				default:
					j.Output, _ = json.Marshal("did " + w.resolved[j.Spec.Name].Instructions)
				}
			}
			finish(t, w)
			fan := w.find("fan")
			if w.atMost["fan"] > 2 {
				t.Errorf("%d parts at once, want at most 2", w.atMost["fan"])
			}
			switch {
			case c.end != "":
				if fan.Exit != c.end || fan.Message != c.want || c.end == job.ExitFailed && fan.Class != job.VerifyFailed {
					t.Errorf("got %+v", fan)
				}
			case strings.HasPrefix(c.want, "join"):
				if r := w.resolved["sum"]; fan.Exit != job.ExitSucceeded || r == nil || r.Instructions != c.want {
					t.Errorf("got %+v, %+v", fan, r)
				} else if n := strings.Count(c.items, "path"); len(r.Patches) != n || n > 0 && r.Patches[2] != (job.Patch{Job: "fan@3", Path: "/fan@3"}) {
					t.Errorf("patches %v", r.Patches)
				}
			case fan.Exit != job.ExitFailed || fan.Class != job.Config || !strings.Contains(fan.Message, c.want):
				t.Errorf("got %+v", fan)
			}
			if p := w.find("fan@1"); p != nil && (p.Spec.Key != "" || p.Spec.OnDuplicate != job.RunEach || p.Spec.Flow.Part != 1 || p.Spec.Flow.ForEach != nil) {
				t.Errorf("part %+v", p.Spec)
			}
		})
	}
}

// turn is how one turn of a loop ends.
type turn struct {
	check  *workflow.CheckResult
	output string
	digest string
	files  []string
	exit   job.ExitKind
}

func TestLoop(t *testing.T) {
	red := func(say string) *workflow.CheckResult { return &workflow.CheckResult{Message: say} }
	green, mute := &workflow.CheckResult{Passed: true}, &workflow.CheckResult{Message: "there is no DONE", Mute: true}
	command := job.Loop{Command: "make test", MaxIterations: 4}
	for name, c := range map[string]struct {
		loop  job.Loop
		turns []turn
		want  string // of the node's output or message
	}{
		"passes at once": {command, []turn{{check: green, output: `"a"`}}, `"a"`},
		"passes later":   {command, []turn{{check: red("2 failed"), digest: "x"}, {check: red("1 failed"), digest: "y"}, {check: green, output: `"c"`}}, `"c"`},
		"same diff":      {command, []turn{{check: red("1"), digest: "x"}, {check: red("2"), digest: "x"}}, "no longer converges: its last 2 turns made the same change (loop.max_same); the check says: 2"},
		"same diff of 3": {job.Loop{Command: "t", MaxIterations: 9, MaxSame: 3}, []turn{{check: red("1"), digest: "x"}, {check: red("2"), digest: "x"}, {check: red("3"), digest: "y"}, {check: red("4"), digest: "y"}, {check: red("5"), digest: "y"}}, "last 3 turns made the same change"},
		"no diff":        {command, []turn{{check: red("1"), output: `"a"`}, {check: red("2"), output: `"a"`}}, "its last 2 turns changed no file and answered the same (loop.max_same)"},
		"other answers":  {command, []turn{{check: red("1"), output: `"a"`}, {check: red("2"), output: `"b"`}, {check: green, output: `"c"`}}, `"c"`},
		"same failure":   {command, []turn{{check: red("1"), digest: "x"}, {check: red("1"), digest: "y"}}, "failed the check in the same words (loop.max_same): 1"},
		"no words":       {job.Loop{File: "DONE", MaxIterations: 4}, []turn{{check: mute, digest: "1"}, {check: mute, digest: "2"}, {check: green, digest: "3", output: `"c"`}}, `"c"`},
		"scope":          {job.Loop{Command: "t", MaxIterations: 9, MaxFiles: 2}, []turn{{check: red("1"), digest: "x", files: []string{"a", "b"}}, {check: red("2"), digest: "y", files: []string{"b", "c"}}}, "scope grows: its turns have changed 3 files, at most 2 are allowed (loop.max_files)"},
		"iterations":     {command, []turn{{check: red("1"), digest: "1"}, {check: red("2"), digest: "2"}, {check: red("3"), digest: "3"}, {check: red("4"), digest: "4"}}, "the check did not pass within 4 turns (loop.max_iterations): 4"},
		"a turn fails":   {command, []turn{{check: red("1"), digest: "1"}, {exit: job.ExitFailed}}, "part fix@2 (2 of 2) failed: broke"},
		"a turn stops":   {command, []turn{{exit: job.ExitCancelled}}, ""},
		"no word":        {command, []turn{{}}, "turn fix@1: it has ended, but nobody has said whether it passes the check"},
		"until":          {job.Loop{Until: "output.score >= 0.9", MaxIterations: 5}, []turn{{output: `{"score":0.5}`}, {output: `{"score":0.95}`}}, `{"score":0.95}`},
		"until, words":   {job.Loop{Until: "output.score >= 0.9 || loop.turn == 3", MaxIterations: 5}, []turn{{output: `"{\"score\":0.5}"`}, {output: `"{\"score\":0.6}"`}, {output: `"{\"score\":0.1}"`}}, `"{\"score\":0.1}"`},
		"until, same":    {job.Loop{Until: "output.score >= 0.9", MaxIterations: 5}, []turn{{output: `{"score":0.5}`, digest: "x"}, {output: `{"score":0.5}`, digest: "y"}}, `output.score >= 0.9 does not hold of the answer {"score":0.5}`},
		"until, wrong":   {job.Loop{Until: "output.score + 1", MaxIterations: 5}, []turn{{output: `{"score":0.5}`}}, "loop.until ${{ output.score + 1 }} gives a number, want true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			fix := spec("fix", "base")
			fix.Flow.From = []job.Name{"base"}
			fix.Flow.Loop = &c.loop
			fix.Instructions = "turn ${{ loop.turn }}, last ${{ toJSON(loop.last) }}, failure ${{ loop.failure }}"
			w := newWorld([]job.Spec{spec("base"), fix}, func(j *workflow.Job) {
				if j.Patch = "/" + string(j.Spec.Name); j.Spec.Flow.Node == "" {
					return
				}
				u := c.turns[j.Spec.Flow.Part-1]
				j.Output, j.Digest, j.Files, j.Check = json.RawMessage(u.output), u.digest, u.files, u.check
				if u.exit != "" {
					j.Exit, j.Message = u.exit, "broke"
				}
			})
			finish(t, w)
			node, last := w.find("fix"), c.turns[len(c.turns)-1]
			ok := last.exit == "" && (node.Exit == job.ExitSucceeded && string(node.Output) == c.want || node.Exit == job.ExitFailed && strings.Contains(node.Message, c.want))
			if !ok && !(last.exit == job.ExitFailed && node.Message == c.want) && !(last.exit == job.ExitCancelled && node.Exit == job.ExitCancelled) {
				t.Errorf("got %s %q %s", node.Exit, node.Message, node.Output)
			}
			if n := len(w.jobs) - 2; n != len(c.turns) {
				t.Errorf("%d turns, want %d", n, len(c.turns))
			}
			for i := range c.turns {
				r := w.resolved[job.PartName("fix", i+1)]
				want := []job.Patch{{Job: "base", Path: "/base"}}
				for before := range i {
					name := job.PartName("fix", before+1)
					want = append(want, job.Patch{Job: name, Path: "/" + string(name), SHA256: c.turns[before].digest})
				}
				if !reflect.DeepEqual(r.Patches, want) {
					t.Errorf("turn %d builds on %v, want %v", i+1, r.Patches, want)
				}
			}
		})
	}
}

func TestATurnKnowsTheOneBefore(t *testing.T) {
	fix := spec("fix")
	fix.Flow.Loop = &job.Loop{Command: "t", MaxIterations: 3}
	fix.Instructions = "turn ${{ loop.turn }}, last ${{ loop.last }}, failure ${{ loop.failure }}."
	w := newWorld([]job.Spec{fix}, func(j *workflow.Job) {
		j.Check = &workflow.CheckResult{Passed: j.Spec.Flow.Part == 2, Message: "red ${{ 1 }}"}
	})
	finish(t, w)
	if got := w.resolved["fix@1"].Instructions + w.resolved["fix@2"].Instructions; got != "turn 1, last , failure .turn 2, last answer of fix@1, failure red ${{ 1 }}." {
		t.Errorf("got %s", got)
	}
}

func TestLastTurn(t *testing.T) {
	ok, red := &job.Check{Passed: true}, &job.Check{}
	for _, c := range []struct {
		loop *job.Loop
		o    job.Outcome
		want bool
	}{
		{&job.Loop{Command: "t"}, job.Outcome{State: job.RunCompleted, Check: ok}, true},
		{&job.Loop{File: "f"}, job.Outcome{State: job.RunCompleted, Check: red}, false},
		{&job.Loop{Command: "t"}, job.Outcome{State: job.RunFailed, Check: ok}, false},
		{&job.Loop{Command: "t"}, job.Outcome{State: job.RunCompleted}, false},
		{&job.Loop{Until: "output.ok"}, job.Outcome{State: job.RunCompleted, Answer: `{"ok":true}`}, true},
		{&job.Loop{Until: "output.ok"}, job.Outcome{State: job.RunCompleted, Answer: `no`}, false},
		{&job.Loop{Until: "loop.turn == 2"}, job.Outcome{State: job.RunCompleted}, true},
		{nil, job.Outcome{State: job.RunCompleted, Check: ok}, false},
	} {
		s := spec("x@2")
		s.Flow.Loop, s.Flow.Node, s.Flow.Part = c.loop, "x", 2
		if got := workflow.LastTurn(&s, &c.o); got != c.want {
			t.Errorf("%+v after %+v: got %v", c.loop, c.o, got)
		}
	}
}

func TestANodeThatIsWithdrawnTakesItsPartsAlong(t *testing.T) {
	fan := spec("fan")
	fan.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`[1,2,3]`), MaxParallel: 1}
	w := newWorld([]job.Spec{fan, spec("x", "fan")}, func(*workflow.Job) {})
	settle(t, w)
	w.end(w.runnable()[0])
	settle(t, w)
	w.find("fan").State = job.Cancelled
	finish(t, w)
	for name, want := range map[job.Name]job.EntryState{"fan@1": job.Completed, "fan@2": job.Completed, "fan@3": job.Cancelled, "x": job.Cancelled} {
		if got := w.find(name).State; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestPartsThatRunAreSeenToTheirEnd: what becomes of a need later does not undo
// that its condition held.
func TestPartsThatRunAreSeenToTheirEnd(t *testing.T) {
	fan, again := spec("fan", "a"), spec("a+1")
	fan.Flow.ForEach = &job.ForEach{Items: json.RawMessage(`[1,2]`)}
	again.Flow.Restart = 1
	w := newWorld([]job.Spec{spec("a"), fan}, func(j *workflow.Job) {
		if j.Spec.Name == "a+1" {
			j.Exit = job.ExitFailed
		}
	})
	settle(t, w)
	w.end(0)
	settle(t, w)
	w.add([]job.Spec{again})
	w.find("a+1").Held = ""
	finish(t, w)
	if fan := w.find("fan"); fan.Exit != job.ExitSucceeded {
		t.Errorf("got %+v", fan)
	}
}
