package codex

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
	"github.com/agentsched/agentsched/worker/workertest"
)

var record = flag.Bool("record", false, "write the transcripts of the conversations with the real program")

func TestMain(m *testing.M) {
	end, err := testrun.Keep()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	end()
	os.Exit(code)
}

// cli returns the path of the program at its pinned version. Without it the test is skipped, but where CI or
// AGENTSCHED_REQUIRE_WORKERS says that it must be there, it fails.
func cli(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("AGENTSCHED_TEST_WORKERS")
	if dir == "" {
		var err error
		if dir, err = filepath.Abs(filepath.Join("..", "..", ".cache", "workers")); err != nil {
			t.Fatal(err)
		}
	}
	if path := agentcli.CatalogOf(map[string]worker.Adapter{program.Name: Adapter{}}).Find(dir, []job.WorkerKind{Kind})[Kind]; path != "" {
		return path
	}
	miss := fmt.Sprintf("codex is not in %s: `go run ./cmd/scheduler install-workers --dir .cache/workers` installs it, AGENTSCHED_TEST_WORKERS names another folder", dir)
	if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_WORKERS") != "" {
		t.Fatal(miss)
	}
	t.Skip(miss)
	return ""
}

// conversation is a run of the real program, and what others have for it.
type conversation struct {
	name  string
	after string // the conversation whose folders and session it has
	turns []reaction
	caps  []job.Capability
	allow []string // allow_commands
	asked bool
	fork  bool
	schema,
	system string
	config string            // of the user
	files  map[string]string // of the workspace
	// on is called with each event and each action for others; what it returns is told to the session.
	on     func(c *conversation, e job.Event, a worker.Action) []worker.Input
	tokens int64 // max_tokens
	cost   float64
	limit  time.Duration // max_command_time
	kill   bool          // SIGKILL at a command that sleeps
	check  func(t *testing.T, c *conversation)

	work    string // the workspace
	model   *model
	outcome job.Outcome
	events  []job.Event
	told    []worker.Action
	said    bool // whatever on has to say once
}

// once returns in the first time that it is called.
func (c *conversation) once(in ...worker.Input) []worker.Input {
	if c.said {
		return nil
	}
	c.said = true
	return in
}

// running reports whether e is the beginning of a command.
func running(e job.Event) bool { return e.Kind == job.EventCommand && e.ExitCode == nil }

func questionOf(a worker.Action) (worker.Question, bool) {
	ask, ok := a.(worker.Ask)
	return ask.Question, ok
}

// asked returns what the run has asked.
func (c *conversation) questions() (all []worker.Question) {
	for _, a := range c.told {
		if q, ok := questionOf(a); ok {
			all = append(all, q)
		}
	}
	return all
}

func (c *conversation) settled(id string) (states []worker.MessageState) {
	for _, a := range c.told {
		if s, ok := a.(worker.Settle); ok && s.Message == id {
			states = append(states, s.State)
		}
	}
	return states
}

// find returns the first event that f holds for.
func (c *conversation) find(f func(job.Event) bool) (job.Event, bool) {
	i := slices.IndexFunc(c.events, f)
	if i < 0 {
		return job.Event{}, false
	}
	return c.events[i], true
}

// heard is the input of the last request to the model.
func (c *conversation) heard() string { return c.model.heard[len(c.model.heard)-1] }

const recordedThread = "01a20000-0000-7000-8000-000000000000"

// task is the task of a conversation, as far as its session sees it.
func (c *conversation) task(name string) *worker.Task {
	tk := &worker.Task{Job: "j", Name: "my-job", Attempt: 1, Kind: Kind, Model: "m", Instructions: "go", SystemPrompt: c.system, Dir: "/workspace",
		Capabilities: c.caps, AllowCommands: c.allow, Asked: c.asked, Fork: c.fork, Output: json.RawMessage(c.schema), Confined: true}
	if c.after != "" {
		tk.Session, tk.Attempt = recordedThread, 2
	}
	return tk
}

func conversationOf(t *testing.T, name string) *conversation {
	t.Helper()
	i := slices.IndexFunc(conversations, func(c conversation) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("%s is no conversation", name)
	}
	one := conversations[i]
	return &one
}

// realTask is the task in folders of its own, or in those of an earlier conversation.
func (c *conversation) realTask(t *testing.T, dir string) *worker.Task {
	t.Helper()
	tk := c.task(c.name)
	for _, f := range []string{"work", "home", "user/.codex", "private", "tmp", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	workertest.Write(t, filepath.Join(dir, "user/.codex/config.toml"), c.config)
	scratch, err := os.MkdirTemp(dir, "scratch")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range c.files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(c.work, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		workertest.Write(t, filepath.Join(c.work, name), content)
	}
	if c.after != "" {
		tk.Session = string(workertest.Read(t, filepath.Join(dir, "session")))
	}
	tk.Dir, tk.Home, tk.Scratch = filepath.Join(dir, "work"), filepath.Join(dir, "home"), scratch
	tk.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "private"), "TMPDIR=" + filepath.Join(dir, "tmp"), "LANG=C.UTF-8"}
	tk.Lookup = workertest.Lookup("HOME", filepath.Join(dir, "user"))
	tk.Models = &worker.ModelEndpoint{URL: c.model.URL, Key: "k", API: worker.OpenAIResponses}
	tk.Settings.Command = []string{cli(t)}
	return tk
}

// converse has the real program do the task.
func (c *conversation) converse(t *testing.T, dir string) {
	t.Helper()
	c.work = filepath.Join(dir, "work")
	c.model = newModel(t, c.turns)
	tk := c.realTask(t, dir)
	session, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	clean := strings.NewReplacer(c.work, "/workspace", dir, "/run", c.model.URL, "http://model", filepath.Dir(tk.Settings.Command[0]), "/bin").Replace
	rec := &workertest.Recorder{Session: session, Clean: clean}
	if tk.Session != "" {
		rec.Clean = func(s string) string { return clean(strings.ReplaceAll(s, tk.Session, recordedThread)) }
	}
	var tree atomic.Pointer[proc.Tree]
	c.outcome = workertest.Converse(t, rec, worker.Run{
		Tag: "codex-test/" + c.name + "/1", Model: "m", LogDir: filepath.Join(dir, "logs"), MaxCommandTime: c.limit, Tokens: c.tokens, CostUSD: c.cost,
		Prices: map[string]job.Price{"m": {Input: 1000, Output: 1000}},
		Watch:  func(of *proc.Tree) func() { tree.Store(of); return func() {} },
	}, func(e job.Event, a worker.Action) []worker.Input {
		if a != nil {
			c.told = append(c.told, a)
		} else {
			c.events = append(c.events, e)
		}
		if c.kill && a == nil && running(e) && strings.Contains(e.Command, "sleep") {
			p, err := os.FindProcess(tree.Load().Pid())
			if err == nil {
				err = p.Kill()
			}
			if err != nil {
				t.Error(err)
			}
		}
		if c.on == nil {
			return nil
		}
		return c.on(c, e, a)
	})
	if e, ok := c.find(func(e job.Event) bool { return e.Kind == job.EventSession }); ok {
		workertest.Write(t, filepath.Join(dir, "session"), e.Session)
	}
	if *record {
		if err := os.WriteFile("testdata/"+c.name+".transcript", rec.Transcript(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if c.check(t, c); t.Failed() {
		t.Logf("outcome %+v\nevents %+v\ntold %+v\n%s", c.outcome, c.events, c.told, string(rec.Transcript()))
	}
}

// TestReal has each conversation with the real program.
func TestReal(t *testing.T) {
	cli(t)
	folders := map[string]string{}
	for _, c := range conversations {
		dir := folders[c.after]
		if dir == "" {
			dir = t.TempDir()
		}
		folders[c.name] = dir
		t.Run(c.name, func(t *testing.T) { c.converse(t, dir) })
	}
}
