package opencode

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
	"github.com/agentsched/agentsched/worker/opencode/relay"
	"github.com/agentsched/agentsched/worker/workertest"
)

var record = flag.Bool("record", false, "write the transcripts of the conversations with the real program")

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == relay.Command {
		os.Exit(relay.Main(os.Args[2:]))
	}
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
	miss := fmt.Sprintf("opencode is not in %s: `go run ./cmd/scheduler install-workers --dir .cache/workers` installs it, AGENTSCHED_TEST_WORKERS names another folder", dir)
	if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_WORKERS") != "" {
		t.Fatal(miss)
	}
	t.Skip(miss)
	return ""
}

// conversation is a run of the real program, and what others have for it.
type conversation struct {
	turns, sub []turn
	caps       []job.Capability
	commands   []string // allow_commands
	// on is called with each event and each action for others; what it returns is told to the session.
	on    func(c *conversation, e job.Event, a worker.Action) []worker.Input
	limit time.Duration // max_command_time
	check func(t *testing.T, c *conversation)

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

func question(a worker.Action) (worker.Question, bool) {
	ask, ok := a.(worker.Ask)
	return ask.Question, ok
}

// answering answers each question with f.
func answering(f func(q worker.Question) worker.Answer) func(*conversation, job.Event, worker.Action) []worker.Input {
	return func(_ *conversation, _ job.Event, a worker.Action) []worker.Input {
		q, ok := question(a)
		if !ok {
			return nil
		}
		answer := f(q)
		answer.Question = q.ID
		return []worker.Input{answer}
	}
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

// conversationTask is the task of a conversation with the real program, as far as its session sees it.
func conversationTask(name string) *worker.Task {
	tk := &worker.Task{Job: "j", Name: "my-job", Attempt: 1, Kind: Kind, Model: "fake/m", Instructions: "go", Dir: "/workspace"}
	if after, ok := map[string]string{"resume": "ses_plain", "fork": "ses_plain"}[name]; ok {
		tk.Session, tk.Attempt, tk.Fork = after, 2, name == "fork"
	}
	return tk
}

// realTask is the task in folders of its own. of, if it is not "", holds the folders of an earlier run.
func realTask(t *testing.T, name, dir string, m *model) *worker.Task {
	t.Helper()
	tk := conversationTask(name)
	for _, f := range []string{"work", "home", "user/.config/opencode", "tmp", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	workertest.Write(t, filepath.Join(dir, "user/.config/opencode/opencode.json"), `{"provider":{"fake":{"npm":"@ai-sdk/openai-compatible","name":"fake",
		"options":{"baseURL":"`+m.URL+`/v1","apiKey":"k"},"models":{"m":{}}}},"enabled_providers":["fake"],"small_model":"fake/m"}`)
	scratch, err := os.MkdirTemp(dir, "scratch")
	if err != nil {
		t.Fatal(err)
	}
	tk.Dir, tk.Home, tk.Scratch, tk.Asked = filepath.Join(dir, "work"), filepath.Join(dir, "home"), scratch, true
	tk.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "user"), "TMPDIR=" + filepath.Join(dir, "tmp"), "LANG=C.UTF-8", "OPENCODE_DISABLE_MODELS_FETCH=1"}
	tk.Settings.Command = []string{cli(t)}
	return tk
}

// converse has the real program do the task.
func converse(t *testing.T, c *conversation, name, dir string) {
	t.Helper()
	c.model = newModel(t, c.turns, c.sub)
	tk := realTask(t, name, dir, c.model)
	tk.Capabilities, tk.AllowCommands = c.caps, c.commands
	if tk.Session != "" {
		tk.Session = string(workertest.Read(t, filepath.Join(dir, "session")))
	}
	session, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	clean := strings.NewReplacer(dir+"/work", "/workspace", strings.TrimPrefix(dir, "/")+"/work", "workspace", dir, "/run", c.model.URL, "http://model", filepath.Dir(tk.Settings.Command[0]), "/bin").Replace
	rec := &workertest.Recorder{Session: session, Clean: clean}
	if tk.Session != "" {
		rec.Clean = func(s string) string { return clean(strings.ReplaceAll(s, tk.Session, "ses_plain")) }
	}
	c.outcome = workertest.Converse(t, rec, worker.Run{
		Tag: "opencode-test/" + name + "/1", Model: "m", LogDir: filepath.Join(dir, "logs"), MaxCommandTime: c.limit,
	}, func(e job.Event, a worker.Action) []worker.Input {
		if a != nil {
			c.told = append(c.told, a)
		} else {
			c.events = append(c.events, e)
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
		workertest.Write(t, "testdata/"+name+".transcript", string(rec.Transcript()))
	}
	if t.Failed() {
		return
	}
	c.check(t, c)
	if t.Failed() {
		t.Logf("outcome %+v\nevents %+v\ntold %+v\n%s", c.outcome, c.events, c.told, string(rec.Transcript()))
	}
}

// brief are the conversations that are had in every test, the others only in a soak: their transcripts are played.
var brief = []string{"plain", "resume", "ask-no", "steer", "subagent"}

// TestReal has the conversations with the real program.
func TestReal(t *testing.T) {
	cli(t)
	folders := map[string]string{}
	for _, c := range conversations {
		dir := t.TempDir()
		if c.after != "" {
			dir = folders[c.after]
		}
		folders[c.name] = dir
		t.Run(c.name, func(t *testing.T) {
			if !*record && !slices.Contains(brief, c.name) {
				testrun.Long(t, "a start of OpenCode computes for five seconds; the others' transcripts are played")
			}
			one := c.conversation
			one.work = filepath.Join(dir, "work")
			converse(t, &one, c.name, dir)
		})
	}
}
