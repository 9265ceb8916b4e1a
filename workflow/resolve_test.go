package workflow_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

func TestWordsAreReplaced(t *testing.T) {
	a, x := spec("fix-login"), spec("x", "fix-login")
	a.Output = json.RawMessage(`{}`)
	x.Instructions = "Review ${{ jobs.fix-login.output.title }} ($${{ as it is }}), ${{ jobs.fix-login.output }}, ${{ jobs.fix-login.files }}, ${{ jobs.fix-login.output.n }}${{ jobs.fix-login.output.none.at.all }}."
	x.SystemPrompt = "${{ jobs.fix-login.patch }}"
	x.Verify = `test "${{ jobs.fix-login.output.title }}" != "${{ jobs.fix-login.state }}"`
	x.Flow.Input = json.RawMessage(`{"all":"${{ jobs.fix-login.output }}","words":["n is ${{ jobs.fix-login.output.n }}",7],"first":"${{ jobs.fix-login.files[0] }}"}`)
	w := newWorld([]job.Spec{a, x}, func(j *workflow.Job) {
		j.Output, j.Patch, j.Files = json.RawMessage(`{"title":"it's <b> $(rm -rf /) ${{ 1 }}","n":3}`), "/s/fix.patch", []string{"a.go", "b.go"}
	})
	finish(t, w)
	got := w.resolved["x"]
	title := "it's <b> $(rm -rf /) ${{ 1 }}"
	object := "{\n  \"n\": 3,\n  \"title\": \"" + title + "\"\n}"
	if want := "Review " + title + " (${{ as it is }}), " + object + ", [\n  \"a.go\",\n  \"b.go\"\n], 3."; got.Instructions != want {
		t.Errorf("got  %s\nwant %s", got.Instructions, want)
	}
	if got.SystemPrompt != "/s/fix.patch" {
		t.Errorf("system prompt %q", got.SystemPrompt)
	}
	if want := "EXPR_1='it'\\''s <b> $(rm -rf /) ${{ 1 }}'\nEXPR_2='succeeded'\ntest \"${EXPR_1}\" != \"${EXPR_2}\""; got.Verify != want {
		t.Errorf("verify\n%s\nwant\n%s", got.Verify, want)
	}
	if want := `{"all":{"n":3,"title":"` + title + `"},"first":"a.go","words":["n is 3",7]}`; string(got.Input) != want {
		t.Errorf("input\n%s\nwant\n%s", got.Input, want)
	}
}

func TestScriptsGetValuesInVariables(t *testing.T) {
	const set = "EXPR_1='it'\\''s'\n"
	for _, c := range []struct {
		worker, fallback   job.WorkerKind
		instructions, want string
	}{
		{"shell", "", "echo ${{ jobs.a.output }}", set + "echo ${EXPR_1}"},
		{"bash", "", "echo ${{ jobs.a.output }}", set + "echo ${EXPR_1}"},
		{"codex", "shell", "echo ${{ jobs.a.output }}", set + "echo ${EXPR_1}"},
		{"codex", "claude", "echo ${{ jobs.a.output }}", "echo it's"},
		{"shell", "", "#!/bin/sh\necho ${{ jobs.a.output }}", "#!/bin/sh\n" + set + "echo ${EXPR_1}"},
	} {
		x := spec("x", "a")
		x.Worker, x.Instructions = c.worker, c.instructions
		if c.fallback != "" {
			x.Fallback = []job.Choice{{Worker: c.fallback}}
		}
		w := newWorld([]job.Spec{spec("a"), x}, func(j *workflow.Job) { j.Output = json.RawMessage(`"it's"`) })
		w.kept.Shells = []job.WorkerKind{"bash"}
		finish(t, w)
		if got := w.resolved["x"].Instructions; got != c.want {
			t.Errorf("%+v:\n%s", c, got)
		}
	}
}

// TestAnInputHasToBeWhatTheAgentTakes, also where it is only known at the end of a need.
func TestAnInputHasToBeWhatTheAgentTakes(t *testing.T) {
	w := &job.Workflow{
		Agents:    []job.Profile{{Name: "reader", Input: json.RawMessage(`{"type":"object","properties":{"pages":{"type":"array","items":{"type":"string"}}}}`)}},
		Pipelines: []job.Pipeline{{Stages: []job.Stage{{Job: "staged"}}}},
	}
	for _, c := range []struct {
		name, output, want string
	}{
		{"x", `["a","b"]`, ""},
		{"x", `["a",2]`, "input: is not what agent reader takes: pages.1: got number, want string"},
		{"staged", `2`, ""},
	} {
		x := spec(c.name, "a")
		x.Agent, x.Flow.Input = "reader", json.RawMessage(`{"pages":"${{ jobs.a.output }}"}`)
		world := newWorld([]job.Spec{spec("a"), x}, func(j *workflow.Job) { j.Output = json.RawMessage(c.output) })
		world.kept.Workflow = w
		finish(t, world)
		if j := world.find(job.Name(c.name)); j.Message != c.want || c.want != "" && j.Class != job.Config {
			t.Errorf("%+v: got %+v", c, j)
		}
	}
}

// TestAShellSeesTheValueAndNothingElse runs what a real shell makes of values that
// would do harm in its words.
func TestAShellSeesTheValueAndNothingElse(t *testing.T) {
	for _, value := range []string{"", "plain", "it's", `"; exit 7; "`, "$(exit 7)", "`exit 7`", "a\nb\n\tc", `\`, `'\''`, "${{ 1 }} ${HOME} é", "*", "\nEOF\nexit 7"} {
		x := spec("x", "a")
		x.Verify = "cat <<EOF\n${{ jobs.a.output }}\nEOF\nprintf '%s' \"${{ jobs.a.output }}\""
		w := newWorld([]job.Spec{spec("a"), x}, func(j *workflow.Job) { j.Output, _ = json.Marshal(value) })
		finish(t, w)
		got, err := exec.Command("/bin/sh", "-c", w.resolved["x"].Verify).Output()
		if err != nil || string(got) != value+"\n"+value {
			t.Errorf("%q: got %q, %v", value, got, err)
		}
	}
}

// TestWhatCannotBeReplaced: the job fails, and says why.
func TestWhatCannotBeReplaced(t *testing.T) {
	for name, c := range map[string]struct{ instructions, want string }{
		"too long":         {"${{ jobs.a.output }}${{ jobs.a.output }}", "instructions: has more than 262144 bytes with its expressions replaced"},
		"too long for one": {"${{ jobs.a.output + jobs.a.output + jobs.a.output + jobs.a.output + jobs.a.output + jobs.a.output }}", "makes a text of more than 1048576 bytes"},
		"doubled":          {"${{ reduce(1..60, [#acc, #acc], 1) }}", "makes a text of more than 1048576 bytes"},
		"endless":          {"${{ count(1..1000, count(1..1000, count(1..1000, true) > 0) > 0) }}", "looks at more than 200000 elements"},
		"memory":           {"${{ 1..2000000 }}", "memory budget exceeded"},
		"nothing":          {"${{ jobs.a.output.nothing ?? '' }}", "instructions: are empty with their expressions replaced"},
		"no number":        {"${{ jobs.a.output + 1 }}", "cannot add a text and a number"},
		"no list":          {"${{ join(jobs.a.state, ',') }}", "join: found a text, want a list"},
	} {
		t.Run(name, func(t *testing.T) {
			x := spec("x", "a")
			x.Instructions = c.instructions
			w := newWorld([]job.Spec{spec("a"), x, spec("y", "x")}, func(j *workflow.Job) {
				j.Output, _ = json.Marshal(strings.Repeat("x", 200_000))
				if name == "nothing" {
					j.Output = json.RawMessage(`{}`)
				}
			})
			finish(t, w)
			if x := w.find("x"); x.Exit != job.ExitFailed || x.Class != job.Config || !strings.Contains(x.Message, c.want) {
				t.Errorf("got %s %s %q, want %q", x.Exit, x.Class, x.Message, c.want)
			}
			if y := w.find("y"); y.Skipped != "it needs x, which has not succeeded: failed" {
				t.Errorf("y: %+v", y)
			}
		})
	}
}

func TestTheHashIsOfTheInputs(t *testing.T) {
	hash := func(edit func(*job.Spec), end func(*workflow.Job)) string {
		x := spec("x", "a")
		x.Flow.From = []job.Name{"a"}
		edit(&x)
		w := newWorld([]job.Spec{spec("a"), x}, end)
		finish(t, w)
		return w.resolved["x"].Hash
	}
	same := func(*job.Spec) {}
	end := func(j *workflow.Job) { j.Patch, j.Digest = "/p", "1" }
	first := hash(same, end)
	if hash(same, func(j *workflow.Job) { j.Patch, j.Digest = "/elsewhere/p", "1" }) != first {
		t.Error("where a patch lies is no input")
	}
	for name, other := range map[string]string{
		"instructions": hash(func(s *job.Spec) { s.Instructions = "other" }, end),
		"verify":       hash(func(s *job.Spec) { s.Verify = "other" }, end),
		"input":        hash(func(s *job.Spec) { s.Flow.Input = json.RawMessage(`1`) }, end),
		"patch":        hash(same, func(j *workflow.Job) { j.Patch, j.Digest = "/p", "2" }),
		"output":       hash(same, func(j *workflow.Job) { end(j); j.Output = json.RawMessage(`2`) }),
	} {
		if other == first {
			t.Errorf("another %s, the same hash", name)
		}
	}
}
