package exec_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/exec"
)

func TestTaskHasTheStoredSteps(t *testing.T) {
	task := newTask(t, "/bin/sh")
	task.Steps = []worker.Step{{ID: "a", Inputs: "x", Result: json.RawMessage(`{"n":1}`)}, {ID: "b/c", Result: json.RawMessage(`null`)}}
	read := func() exec.Task {
		t.Helper()
		var got exec.Task
		if err := json.Unmarshal(start(t, task).Command().Stdin, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := read()
	if len(got.Steps) != 2 || got.StepsFile != "" || string(got.Steps["a"].Result) != `{"n":1}` || got.Steps["a"].Inputs != "x" || string(got.Steps["b/c"].Result) != "null" {
		t.Errorf("task %+v", got)
	}
	task.Steps[1].Result = json.RawMessage(`"` + strings.Repeat("x", exec.MaxSteps) + `"`)
	got = read()
	if got.Steps != nil || filepath.Dir(got.StepsFile) != task.Scratch {
		t.Fatalf("%d steps in the line, file %q", len(got.Steps), got.StepsFile)
	}
	text, err := os.ReadFile(got.StepsFile)
	var steps map[string]exec.StoredStep
	if err == nil {
		err = json.Unmarshal(text, &steps)
	}
	if err != nil || len(steps) != 2 || len(steps["b/c"].Result) != exec.MaxSteps+2 {
		t.Errorf("%d steps in the file, %v", len(steps), err)
	}
}

func TestStepLines(t *testing.T) {
	long := strings.Repeat("x", job.MaxStepInputs+1)
	for _, tt := range []struct{ line, inputs, result string }{
		{`{"type":"step","step":"s"}`, "", ""},
		{`{"type":"step","step":"s","inputs":"i"}`, "", ""}, // a turn has no inputs
		{`{"type":"step","step":"s","result":null}`, "", "null"},
		{`{"type":"step","step":"s","inputs":"i","result":{"a": "<"}}`, "i", `{"a": "<"}`},
		{`{"type":"step","step":"s","inputs":{"b": 1, "a": 2},"result":0}`, `{"b":1,"a":2}`, "0"},
		{`{"type":"step","step":"s","inputs":"` + long + `","result":0}`, job.HashStepInputs([]byte(long)), "0"},
	} {
		events := events(start(t, newTask(t, "/bin/sh")), []byte(tt.line))
		if len(events) != 1 {
			t.Errorf("%s: events %+v", tt.line, events)
			continue
		}
		if e := events[0]; e.Kind != job.EventStep || e.Step != "s" || e.Inputs != tt.inputs || string(e.Result) != tt.result {
			t.Errorf("%s: event %+v, want inputs %q, result %q", tt.line, e, tt.inputs, tt.result)
		}
	}
}

func TestAnswersToSteps(t *testing.T) {
	s := start(t, newTask(t, "/bin/sh"))
	step := worker.Step{ID: "s", Result: json.RawMessage(`[1]`)}
	for _, tt := range []struct {
		kept worker.KeptStep
		want string
	}{
		{worker.KeptStep{Step: step}, `{"type":"step_stored","step":"s"}`},
		{worker.KeptStep{Step: step, FromStore: true}, `{"type":"step_stored","step":"s","from_store":true,"result":[1]}`},
		{worker.KeptStep{Step: step, Err: fmt.Errorf("store: %w", &worker.StepRefusedError{Message: "no"})}, `{"type":"step_refused","step":"s","message":"store: no"}`},
		{worker.KeptStep{Step: step, Err: errors.New("disk full")}, `{"type":"step_refused","step":"s","message":"disk full","again":true}`},
	} {
		if line := written(s, worker.Stored{KeptStep: tt.kept}); line != tt.want+"\n" {
			t.Errorf("wrote %q; want %s", line, tt.want)
		}
	}
}

func TestCheckpointedResult(t *testing.T) {
	const line = `{"type":"result","status":"checkpointed"}`
	tests := []struct {
		name         string
		asked        bool
		lines        []string
		exit         worker.Exit
		class        job.ErrorClass
		checkpointed bool
	}{
		{"asked", true, []string{line}, worker.Exit{}, job.NoError, true},
		{"not asked", false, []string{line}, worker.Exit{}, job.Unknown, false},
		{"with a class", true, []string{`{"type":"result","status":"checkpointed","class":"SERVER"}`}, worker.Exit{}, job.Server, false},
		{"exit 3", true, []string{line}, worker.Exit{Code: 3}, job.Unknown, false},
		{"signal", true, []string{line}, worker.Exit{Code: -1, Signal: "killed"}, job.Crash, false},
		{"stopped", true, []string{line}, worker.Exit{Stopped: true}, job.CancelledClass, false},
		{"then failed", true, []string{line, `{"type":"result","status":"failed","class":"AUTH"}`}, worker.Exit{}, job.Auth, false},
		{"completed first", true, []string{`{"type":"result","status":"completed"}`, line}, worker.Exit{}, job.NoError, false},
		{"completed all the same", true, []string{`{"type":"result","status":"completed"}`}, worker.Exit{}, job.NoError, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, newTask(t, "/bin/sh"))
			if tt.asked {
				if line := written(s, worker.Checkpoint{Reason: "host is needed"}); line != `{"type":"checkpoint","reason":"host is needed"}`+"\n" {
					t.Fatalf("wrote %q", line)
				}
			}
			for _, l := range tt.lines {
				events(s, []byte(l))
			}
			r := end(s, tt.exit)
			if r.Class != tt.class || r.Checkpointed != tt.checkpointed || tt.checkpointed && r.Message != "host is needed" {
				t.Errorf("result %+v", r)
			}
		})
	}
}

// drive runs the session's program and keeps its steps. After each stored step
// it does what then says: "kill" it, or ask for a "checkpoint". The events'
// steps are returned, and the result if the program was not killed.
func drive(t *testing.T, s worker.Session, stored map[string]worker.Step, then func(id string) string) (reported []string, r *worker.Result) {
	t.Helper()
	c := s.Command()
	cmd := osexec.CommandContext(t.Context(), c.Path, c.Args...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	stdin.Write(c.Stdin)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		for _, e := range events(s, lines.Bytes()) {
			if e.Kind == job.EventWarning {
				t.Errorf("warning: %s", e.Text)
			}
			if e.Kind != job.EventStep {
				continue
			}
			reported = append(reported, e.Step)
			k := worker.KeptStep{Step: worker.Step{ID: e.Step, Inputs: e.Inputs, Result: e.Result}}
			if first, ok := stored[e.Step]; !ok {
				stored[e.Step] = k.Step
			} else if k.Step, k.FromStore = first, true; first.Inputs != e.Inputs {
				k.Err = &worker.StepRefusedError{Message: "collision"}
			}
			switch then(e.Step) {
			case "kill":
				killed = true
				cmd.Process.Kill()
			case "checkpoint":
				io.WriteString(stdin, written(s, worker.Checkpoint{Reason: "asked"}))
			}
			io.WriteString(stdin, written(s, worker.Stored{KeptStep: k}))
		}
	}
	stdin.Close()
	if err := cmd.Wait(); killed {
		return reported, nil
	} else if err != nil {
		t.Errorf("the program: %v", err)
	}
	result := end(s, worker.Exit{})
	return reported, &result
}

// TestStepsExample kills the example worker after each of its steps, asks it for
// a checkpoint there, and sees it finish without doing any step again.
func TestStepsExample(t *testing.T) {
	program := filepath.Join(t.TempDir(), "steps")
	build := osexec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/workers/steps")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	const instructions = "echo one >>log; echo 1\necho two >>log; echo 2\necho three >>log; wc -l <log"
	for _, action := range []string{"kill", "checkpoint"} {
		for at := 1; at <= 3; at++ {
			t.Run(fmt.Sprintf("%s at %d", action, at), func(t *testing.T) {
				task := newTask(t, program)
				task.Instructions = instructions
				stored := map[string]worker.Step{}
				reported, r := drive(t, start(t, task), stored, func(id string) string {
					if id == fmt.Sprint(at) {
						return action
					}
					return ""
				})
				if len(reported) != at || action == "checkpoint" && at < 3 && (r == nil || !r.Checkpointed) {
					t.Fatalf("reported %q, result %+v", reported, r)
				}
				task.Attempt = 2
				for _, id := range slices.Sorted(maps.Keys(stored)) {
					task.Steps = append(task.Steps, stored[id])
				}
				reported, r = drive(t, start(t, task), stored, func(string) string { return "" })
				if len(reported) != 3-at || r == nil || r.Class != job.NoError || r.Answer != "3" {
					t.Errorf("then reported %q, result %+v", reported, r)
				}
				if log, err := os.ReadFile(filepath.Join(task.Dir, "log")); err != nil || string(log) != "one\ntwo\nthree\n" {
					t.Errorf("log %q, %v: want each step done once", log, err)
				}
			})
		}
	}
	t.Run("collision", func(t *testing.T) {
		task := newTask(t, program)
		task.Instructions = "echo new"
		_, r := drive(t, start(t, task), map[string]worker.Step{"1": {ID: "1", Inputs: "echo old"}}, func(string) string { return "" })
		if r == nil || r.Class != job.Unknown || r.Message != "collision" {
			t.Errorf("result %+v", r)
		}
	})
}
