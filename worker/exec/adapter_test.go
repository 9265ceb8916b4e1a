package exec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/exec"
	"github.com/agentsched/agentsched/worker/workertest"
)

func conformance(command string) workertest.Config {
	return workertest.Config{
		Adapter: exec.Adapter{}, Kind: "mine",
		Settings:    job.WorkerSettings{Adapter: "exec", Command: []string{command}},
		Transcripts: "testdata",
		Want: map[string]workertest.Want{
			"completed":  {Answer: "TestLogin passes now", Session: "s-7f3a", Tokens: 5210 + 312 + 640 + 98},
			"rate-limit": {Class: job.RateLimit, Session: "s-1", Tokens: 15},
			"cut-off":    {Exit: worker.Exit{Code: 1}, Class: job.Crash, Answer: "half way"},
			"cancelled":  {Exit: worker.Exit{Code: 0, Stopped: true}, Answer: "half"},
			"steps":      {Answer: "both files", Tokens: 900 + 40 + 1200 + 310},

			"conversation":    {Answer: "deployed", Session: "chat-1", Tokens: 70 + 7},
			"converses-badly": {Answer: "I did not say hello"},

			"checkpointed-unasked": {Class: job.Unknown},
			"interrupted-unasked":  {Class: job.Unknown, Session: "s-2"},
		},
	}
}

func TestConformance(t *testing.T) { workertest.Run(t, conformance("/bin/sh")) }

func FuzzSession(f *testing.F) { workertest.Fuzz(f, conformance("/bin/sh")) }

func newTask(t *testing.T, command ...string) *worker.Task {
	t.Helper()
	return &worker.Task{
		Job: job.NewID(), Name: "job", Attempt: 1, Kind: "mine", Instructions: "hello",
		Dir: t.TempDir(), Home: t.TempDir(), Scratch: t.TempDir(),
		Capabilities: []job.Capability{job.CanEdit, job.CanRunCommands},
		Environ:      []string{"PATH=" + os.Getenv("PATH")},
		Settings:     job.WorkerSettings{Adapter: "exec", Command: command},
	}
}

func start(t *testing.T, task *worker.Task) worker.Session {
	t.Helper()
	s, err := exec.Adapter{}.Start(task)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// steps returns what a session does about an input.
func steps(s worker.Session, in worker.Input) []worker.Action { return s.Step(workertest.Now, in) }

// events returns the events of a line of output. A durable step is one, too.
func events(s worker.Session, line []byte) (list []job.Event) {
	for _, a := range steps(s, worker.Output{Line: line}) {
		switch a := a.(type) {
		case worker.Emit:
			list = append(list, a.Event)
		case worker.Store:
			list = append(list, job.Event{Kind: job.EventStep, Step: a.Step.ID, Inputs: a.Step.Inputs, Result: a.Step.Result})
		}
	}
	return list
}

// written returns what a session writes to its program about an input.
func written(s worker.Session, in worker.Input) (text string) {
	for _, a := range steps(s, in) {
		if w, ok := a.(worker.Write); ok {
			text += string(w.Data)
		}
	}
	return text
}

// end returns the result of a session whose program has ended.
func end(s worker.Session, e worker.Exit) worker.Result {
	actions := steps(s, worker.Ended{Exit: e})
	return actions[len(actions)-1].(worker.Finish).Result
}

func TestTaskLine(t *testing.T) {
	task := newTask(t, "/bin/sh", "worker.sh")
	task.Session, task.Model, task.SystemPrompt = "s-1", "m", "be brief"
	task.Fork, task.Asked = true, true
	task.Capabilities = []job.Capability{job.CanRunTests}
	task.Output = json.RawMessage(`{"type":"object"}`)
	task.Limits = job.Limits{Timeout: job.Duration(time.Minute), MaxSteps: 7, MaxTokens: 100, MaxCostUSD: 0.5}
	task.Settings.KeyEnv = "MY_KEY"
	task.Lookup = func(name string) (string, bool) { return "sesame", name == "MY_KEY" }
	cmd := start(t, task).Command()
	if bytes.Count(cmd.Stdin, []byte("\n")) != 1 || !bytes.HasSuffix(cmd.Stdin, []byte("\n")) {
		t.Fatalf("stdin %q, want one line", cmd.Stdin)
	}
	var got exec.Task
	if err := json.Unmarshal(cmd.Stdin, &got); err != nil {
		t.Fatal(err)
	}
	want := exec.Task{
		Type: "task", Protocol: 1, Job: task.Job, Name: "job", Attempt: 1, Instructions: "hello",
		SystemPrompt: "be brief", Model: "m", KeyEnv: "MY_KEY", Session: "s-1", Fork: true, Asked: true,
		Dir: task.Dir, Home: task.Home, Scratch: task.Scratch,
		Capabilities: task.Capabilities, AllowCommands: job.TestCommands(), OutputSchema: task.Output,
		Limits: exec.Limits{TimeoutMillis: 60_000, MaxSteps: 7, MaxTokens: 100, MaxCostUSD: 0.5},
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Errorf("task\n%s\nwant\n%s", a, b)
	}
	if !slices.Contains(cmd.Env, "MY_KEY=sesame") || bytes.Contains(cmd.Stdin, []byte("sesame")) {
		t.Error("the key must be in the environment and nowhere else")
	}
	if !cmd.KeepStdin || cmd.Path != "/bin/sh" || !slices.Equal(cmd.Args, []string{"worker.sh"}) {
		t.Errorf("command %+v", cmd)
	}
}

// TestGoExample builds the example worker and drives it.
func TestGoExample(t *testing.T) {
	program := filepath.Join(t.TempDir(), "echo")
	build := osexec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/workers/echo")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	t.Run("completes", func(t *testing.T) {
		task := newTask(t, program)
		task.Instructions = "echo one\necho two"
		events, r := workertest.Drive(t, start(t, task), nil)
		if r.Class != job.NoError || r.Answer != "two" {
			t.Fatalf("result %+v", r)
		}
		var ended []string
		for _, e := range events {
			if e.Kind == job.EventCommand && e.ExitCode != nil {
				ended = append(ended, e.Command+"="+e.Text)
			}
			if e.Kind == job.EventWarning {
				t.Errorf("warning: %s", e.Text)
			}
		}
		if !slices.Equal(ended, []string{"echo one=one", "echo two=two"}) {
			t.Errorf("commands %q", ended)
		}
	})
	t.Run("fails", func(t *testing.T) {
		task := newTask(t, program)
		task.Instructions = "exit 3"
		if _, r := workertest.Drive(t, start(t, task), nil); r.Class != job.Unknown || !strings.Contains(r.Message, "exit status 3") {
			t.Errorf("result %+v", r)
		}
	})
	t.Run("is cancelled", func(t *testing.T) {
		task := newTask(t, program)
		task.Instructions = "sleep 300"
		events, r := workertest.Drive(t, start(t, task), func(e job.Event) bool { return e.Kind == job.EventCommand })
		if r.Class != job.CancelledClass {
			t.Errorf("result %+v", r)
		}
		if last := events[len(events)-1]; last.ExitCode == nil {
			t.Errorf("last event %+v, want the end of the command", last)
		}
	})
}

// TestDocumentedWorker runs the Python worker of the protocol's page.
func TestDocumentedWorker(t *testing.T) {
	python, err := osexec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this host")
	}
	script := filepath.Join(t.TempDir(), "worker.py")
	if err := os.WriteFile(script, block(t, "python"), 0o600); err != nil {
		t.Fatal(err)
	}
	task := newTask(t, python, script)
	events, r := workertest.Drive(t, start(t, task), nil)
	if r.Class != job.NoError || r.Answer != "HELLO" {
		t.Fatalf("result %+v", r)
	}
	for _, e := range events {
		if e.Kind == job.EventWarning {
			t.Errorf("warning: %s", e.Text)
		}
	}
	if got, err := os.ReadFile(filepath.Join(task.Dir, "SHOUT.txt")); err != nil || string(got) != "HELLO\n" {
		t.Errorf("the worker wrote %q, %v", got, err)
	}
}

// TestDocumentedTranscripts plays the page's examples: their lines to the program have the
// fields of ours, those of a conversation are what we write, and nothing that the program
// says is warned of.
func TestDocumentedTranscripts(t *testing.T) {
	for _, name := range []string{"transcript", "conversation"} {
		s := start(t, newTask(t, "/bin/sh"))
		for line := range bytes.Lines(block(t, name)) {
			if text, ok := bytes.CutPrefix(line, []byte("> ")); ok {
				playLine(t, s, text)
				continue
			}
			for _, e := range events(s, bytes.TrimPrefix(line, []byte("< "))) {
				if e.Kind == job.EventWarning || e.Kind == job.EventLog && !strings.HasPrefix(e.Text, "worker ") {
					t.Errorf("%s: %s", e.Kind, e.Text)
				}
			}
		}
		if r := end(s, worker.Exit{}); r.Class != job.NoError || r.Answer == "" {
			t.Errorf("%s: result %+v", name, r)
		}
	}
}

// playLine has the session write a line to the program, if it is one of a conversation.
func playLine(t *testing.T, s worker.Session, text []byte) {
	t.Helper()
	said := map[string]any{"task": &exec.Task{}, "cancel": &exec.Cancel{}, "checkpoint": &exec.Checkpoint{}, "message": &exec.Message{}, "interrupt": &exec.Interrupt{}, "answer": &exec.Answer{}, "step_stored": &exec.StepStored{}, "step_refused": &exec.StepRefused{}}
	var head struct{ Type string }
	if err := json.Unmarshal(text, &head); err != nil || said[head.Type] == nil {
		t.Errorf("%s: type %q, %v", text, head.Type, err)
		return
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(said[head.Type]); err != nil {
		t.Errorf("%s: %v", head.Type, err)
	}
	var in worker.Input
	switch m := said[head.Type].(type) {
	case *exec.Message:
		in = worker.Message{ID: m.ID, From: m.From, Text: m.Text, Again: m.Again}
	case *exec.Interrupt:
		in = worker.Interrupt{Reason: m.Reason}
	case *exec.Answer:
		in = worker.Answer{Question: m.Question, Decision: m.Decision, Text: m.Text, Value: m.Value}
	default:
		return
	}
	if line := written(s, in); line != string(text) {
		t.Errorf("wrote %q, the page has %q", line, text)
	}
}

// block returns the only block of a language in the protocol's page.
func block(t *testing.T, language string) []byte {
	t.Helper()
	page, err := os.ReadFile("../../docs/worker-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := bytes.Cut(page, []byte("```"+language+"\n"))
	text, _, end := bytes.Cut(rest, []byte("```\n"))
	if !ok || !end {
		t.Fatalf("the page has no block of %s", language)
	}
	return text
}

// TestGateway checks that a program is told the run's endpoint in place of that of the
// settings, and whom a gateway asks there.
func TestGateway(t *testing.T) {
	for keyEnv, variable := range map[string]string{"MY_KEY": "MY_KEY", "": worker.ModelKeyVariable} {
		task := newTask(t, "/bin/sh")
		task.Settings.BaseURL, task.Settings.KeyEnv = "https://models.example/v1", keyEnv
		task.Environ = append(task.Environ, "MY_KEY=real")
		u, err := exec.Adapter{}.Upstream(task.Settings, func(string) string { return "" })
		if want := (worker.Upstream{API: worker.OpenAIChat, BaseURL: task.Settings.BaseURL, KeyEnv: keyEnv}); err != nil || !reflect.DeepEqual(u, want) {
			t.Errorf("asks %+v, %v; want %+v", u, err, want)
		}
		task.Models = &worker.ModelEndpoint{URL: "http://127.0.0.1:1", Key: "of-the-run", API: worker.OpenAIChat}
		s, err := exec.Adapter{}.Start(task)
		if err != nil {
			t.Fatal(err)
		}
		c := s.Command()
		var line exec.Task
		if err := json.Unmarshal(c.Stdin, &line); err != nil {
			t.Fatal(err)
		}
		if line.BaseURL != "http://127.0.0.1:1/v1" || line.KeyEnv != variable || !slices.Contains(c.Env, variable+"=of-the-run") {
			t.Errorf("told %q, %q in %q", line.BaseURL, line.KeyEnv, c.Env)
		}
	}
	var unserved *worker.UnservedError
	if _, err := (exec.Adapter{}).Upstream(job.WorkerSettings{}, nil); !errors.As(err, &unserved) {
		t.Errorf("without an endpoint: %v", err)
	}
}
