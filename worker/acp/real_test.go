package acp_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/acp"
)

var record = flag.Bool("record", false, "write what real agents print into testdata")

// host is the one that this test binary may have.
var host *proc.Host

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(m.Run()) // the host would take the processes that fuzz for orphans
	}
	var err error
	if host, err = proc.NewHost(proc.Config{Log: zerolog.Nop()}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := host.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "processes are left:", err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// agent is a real one, and how it is pointed at a model.
type agent struct {
	name, program string // program is below .cache
	args          []string
	environ       func(url string) []string
}

var agents = []agent{
	{"opencode", "workers/opencode-1.18.33/node_modules/.bin/opencode", []string{"acp"}, func(url string) []string {
		config, _ := json.Marshal(map[string]any{ // plain values
			"provider": map[string]any{"fake": map[string]any{"npm": "@ai-sdk/openai-compatible",
				"options": map[string]any{"baseURL": url + "/v1", "apiKey": "k"}, "models": map[string]any{"m": map[string]any{}}}},
			"model": "fake/m", "small_model": "fake/m", "autoupdate": false, "share": "disabled",
			"permission": map[string]any{"bash": "ask", "edit": "ask"},
		})
		return []string{"OPENCODE_CONFIG_CONTENT=" + string(config), "OPENCODE_DISABLE_MODELS_FETCH=1"}
	}},
	{"qwen", "acp-agents/node_modules/.bin/qwen", []string{"--acp"}, func(url string) []string {
		return []string{"OPENAI_BASE_URL=" + url + "/v1", "OPENAI_API_KEY=k", "OPENAI_MODEL=m"}
	}},
	{"claude", "acp-agents/node_modules/.bin/claude-agent-acp", nil, func(url string) []string {
		return []string{"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=k", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
			"CLAUDE_CODE_EXECUTABLE=" + cached("workers/claude-2.1.197/node_modules/.bin/claude")}
	}},
	{"gemini", "acp-agents/node_modules/.bin/gemini", []string{"--acp"}, func(string) []string { return nil }},
}

// rig is a real agent in folders of its own.
type rig struct {
	t    *testing.T
	a    agent
	dir  string
	path string
	url  string
	may  []job.Capability

	decide func(worker.Question) worker.Decision
	on     func(job.Event) []worker.Input // what to say to the session about an event
	asked  []worker.Question
	told   []string // of messages
	events []job.Event
}

// cached returns the path of what scripts/setup has installed.
func cached(name string) string {
	cache := filepath.Join("..", "..", ".cache")
	if dir := os.Getenv("AGENTSCHED_TEST_WORKERS"); dir != "" {
		cache = filepath.Dir(dir)
	}
	path, err := filepath.Abs(filepath.Join(cache, name))
	if err != nil {
		panic(err) // there is no working directory
	}
	return path
}

// newRig finds the agent. Without it the test is skipped, but where CI or
// AGENTSCHED_REQUIRE_WORKERS says that it must be there, it fails.
func newRig(t *testing.T, name, url string) *rig {
	t.Helper()
	a := agents[slices.IndexFunc(agents, func(a agent) bool { return a.name == name })]
	path := cached(a.program)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_WORKERS") != "" {
			t.Fatalf("%v; scripts/setup installs it", err)
		}
		t.Skipf("%v; scripts/setup installs it", err)
	}
	r := &rig{t: t, a: a, dir: t.TempDir(), path: path, url: url, may: []job.Capability{job.CanRead, job.CanEdit, job.CanRunCommands}}
	r.decide = func(worker.Question) worker.Decision { return worker.Allow }
	for _, d := range []string{"work", "home", "scratch", "user", "tmp", "logs"} {
		if err := os.Mkdir(filepath.Join(r.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *rig) work(name string) string { return filepath.Join(r.dir, "work", name) }

// run has the agent do a job. It may be called again, to resume the session.
func (r *rig) run(session string) job.Outcome {
	t := r.t
	t.Helper()
	r.asked, r.told, r.events = nil, nil, nil
	s, err := acp.Adapter{}.Start(&worker.Task{
		Job: "j", Name: "j", Attempt: 1, Kind: "mine", Instructions: "Do it.", Session: session,
		Dir: r.work(""), Home: filepath.Join(r.dir, "home"), Scratch: filepath.Join(r.dir, "scratch"), Capabilities: r.may,
		Environ: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(r.dir, "user"), "TMPDIR=" + filepath.Join(r.dir, "tmp"), "LANG=C.UTF-8"},
			r.a.environ(r.url)...),
		Settings: job.WorkerSettings{Adapter: "acp", Command: append([]string{r.path}, r.a.args...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	inputs := make(chan worker.Input, 100)
	runner := worker.Runner{Host: host, Stages: proc.Stages{Interrupt: 5 * time.Second, Terminate: 5 * time.Second, Kill: time.Minute}, Log: zerolog.Nop()}
	o, err := runner.Run(t.Context(), s, worker.Run{
		Tag: "acp-test/" + r.a.name + "/1", LogDir: filepath.Join(r.dir, "logs"), Inputs: inputs,
		Tell: func(a worker.Action) {
			switch a := a.(type) {
			case worker.Ask:
				r.asked = append(r.asked, a.Question)
				inputs <- worker.Answer{Question: a.Question.ID, Decision: r.decide(a.Question)}
			case worker.Settle:
				r.told = append(r.told, a.Message+" "+string(a.State))
			}
		},
		Sink: func(e job.Event) {
			r.events = append(r.events, e)
			if r.on != nil {
				for _, in := range r.on(e) {
					inputs <- in
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// kept writes what the agent has printed into testdata, if that is asked for.
func (r *rig) kept(name string) {
	if !*record {
		return
	}
	data, err := os.ReadFile(filepath.Join(r.dir, "logs", "stdout.log"))
	if err != nil {
		r.t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	folders := strings.NewReplacer(r.work(""), "/workspace", filepath.Join(r.dir, "work"), "/workspace", real, "/run", r.dir, "/run")
	text := ""
	for l := range strings.Lines(folders.Replace(string(data))) {
		if !strings.Contains(l, "available_commands_update") { // half a megabyte, and not read
			text += l
		}
	}
	if err := os.WriteFile(filepath.Join("testdata", r.a.name+"-"+name+".jsonl"), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// fails shows what the run has said.
func (r *rig) fails(format string, values ...any) {
	r.t.Helper()
	var logs strings.Builder
	for _, name := range []string{"stdout.log", "stderr.log"} {
		text, _ := os.ReadFile(filepath.Join(r.dir, "logs", name)) // it may have said nothing
		logs.WriteString("\n-- " + name + "\n" + string(text[max(0, len(text)-4000):]))
	}
	r.t.Errorf(format+"%s", append(values, logs.String())...)
}

func model(t *testing.T, script scriptmodel.Script) *scriptmodel.Server {
	t.Helper()
	m, err := scriptmodel.New(scriptmodel.Options{Default: &script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// eachModelled runs a test with each agent that can be pointed at the scripted model; without
// a soak with those that are named.
func eachModelled(t *testing.T, daily []string, f func(t *testing.T, name string)) {
	for _, a := range agents {
		if a.name == "gemini" {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			if !slices.Contains(daily, a.name) {
				testrun.Long(t, "others do this, and this one the others")
			}
			f(t, a.name)
		})
	}
}

// TestRealAgents has each of them run a command that it asks for, and goes on with its
// session in a second run.
func TestRealAgents(t *testing.T) {
	eachModelled(t, []string{"opencode", "qwen", "claude"}, func(t *testing.T, name string) {
		m := model(t, scriptmodel.Play(scriptmodel.Run("echo one > made.txt; echo printed"), scriptmodel.Say("All done.")).Resuming(scriptmodel.Say("And again.")))
		r := newRig(t, name, m.URL())
		o := r.run("")
		if o.State != job.RunCompleted || o.Answer != "All done." || o.Session == "" || o.Usage.Tokens() == 0 {
			r.fails("outcome %+v", o)
			return
		}
		if data, err := os.ReadFile(r.work("made.txt")); err != nil || string(data) != "one\n" {
			r.fails("the file is %q, %v", data, err)
		}
		if len(r.asked) != 1 || r.asked[0].Kind != worker.AboutCommand || r.asked[0].Command != "echo one > made.txt; echo printed" {
			r.fails("asked %+v", r.asked)
		}
		if len(o.Commands) != 1 || o.Commands[0].ExitCode != 0 {
			r.fails("commands %+v", o.Commands)
		}
		if !slices.ContainsFunc(r.events, func(e job.Event) bool { return e.Kind == job.EventCommand && strings.Contains(e.Text, "printed") }) {
			r.fails("no output in %+v", r.events)
		}
		r.kept("command")
		first := o.Session
		o = r.run(first)
		if o.State != job.RunCompleted || o.Answer != "And again." || o.Session != first || len(o.Commands) > 0 {
			r.fails("resumed: %+v", o)
		}
	})
}

// TestRealAgentIsDenied: what a person denies is not done, and listed.
func TestRealAgentIsDenied(t *testing.T) {
	eachModelled(t, []string{"qwen"}, func(t *testing.T, name string) {
		m := model(t, scriptmodel.Play(scriptmodel.Run("echo one > made.txt"), scriptmodel.Say("I may not.")))
		r := newRig(t, name, m.URL())
		r.decide = func(worker.Question) worker.Decision { return worker.Deny }
		o := r.run("")
		if _, err := os.Stat(r.work("made.txt")); err == nil || o.State != job.RunCompleted || len(o.Denied) != 1 || !strings.Contains(o.Denied[0], "echo one > made.txt") {
			r.fails("denied %q, %v, outcome %+v", o.Denied, err, o)
		}
		r.kept("denied")
	})
}

// TestRealAgentIsTold: a message that comes while a command runs has the next turn.
func TestRealAgentIsTold(t *testing.T) {
	eachModelled(t, []string{"claude"}, func(t *testing.T, name string) {
		m := model(t, scriptmodel.Play(scriptmodel.Run("echo one"), scriptmodel.Say("All done.")).Resuming(scriptmodel.Say("Told.")))
		r := newRig(t, name, m.URL())
		said := false
		r.on = func(e job.Event) []worker.Input {
			if e.Kind != job.EventCommand || said {
				return nil
			}
			said = true
			return []worker.Input{worker.Message{ID: "m", Text: "Something else."}}
		}
		o := r.run("")
		if o.State != job.RunCompleted || o.Answer != "Told." || !slices.Equal(r.told, []string{"m delivered", "m folded"}) {
			r.fails("told %q, outcome %+v", r.told, o)
		}
	})
}

// TestRealAgentIsInterrupted: it stops its turn, and its session is kept.
func TestRealAgentIsInterrupted(t *testing.T) {
	eachModelled(t, []string{"opencode"}, func(t *testing.T, name string) {
		m := model(t, scriptmodel.Play(scriptmodel.Run("cat pipe"), scriptmodel.Say("Not reached.")))
		r := newRig(t, name, m.URL())
		r.decide = func(worker.Question) worker.Decision { return worker.Unanswered }
		r.on = func(e job.Event) []worker.Input {
			if e.Kind == job.EventCommand && e.ExitCode == nil {
				return []worker.Input{worker.Interrupt{Reason: "ann interrupted it"}}
			}
			return nil
		}
		if o := r.run(""); o.State != job.Checkpointed || o.Session == "" {
			r.fails("outcome %+v", o)
		}
	})
}

// TestRealAgentIsNotLoggedIn: the failure says what to do.
func TestRealAgentIsNotLoggedIn(t *testing.T) {
	r := newRig(t, "gemini", "")
	o := r.run("")
	if o.State != job.RunFailed || o.Class != job.Auth || !strings.Contains(o.Hint, "Gemini API key") {
		r.fails("outcome %+v", o)
	}
	r.kept("auth")
}

// TestRealAgentsFiles: an agent that leaves its files to its client writes one by us, and
// not where git keeps its own.
func TestRealAgentsFiles(t *testing.T) {
	for _, c := range []struct {
		path    string
		may     job.Capability
		written bool
	}{{"new.txt", job.CanEdit, true}, {".git/config", job.CanEdit, false}, {"other.txt", job.CanRead, true}} {
		t.Run(c.path, func(t *testing.T) {
			var r *rig
			m := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { writeFileModel(w, req, r.work(c.path)) }))
			t.Cleanup(m.Close)
			r = newRig(t, "qwen", m.URL)
			r.may = []job.Capability{c.may}
			if err := os.Mkdir(r.work(".git"), 0o700); err != nil {
				t.Fatal(err)
			}
			o := r.run("")
			data, err := os.ReadFile(r.work(c.path))
			if o.State != job.RunCompleted || (err == nil) != c.written || c.written && string(data) != "two\nlines\n" {
				r.fails("the file is %q, %v; outcome %+v", data, err, o)
			}
			told := 0
			for _, e := range r.events {
				if e.Kind == job.EventFile && e.Path == c.path && e.Change == "added" {
					told++
				}
			}
			if c.written && told != 1 || !c.written && told != 0 {
				r.fails("told %d times: %+v", told, r.events)
			}
			if len(r.asked) != 1 || r.asked[0].Kind != worker.AboutWrite || r.asked[0].Path != c.path || !strings.Contains(r.asked[0].Diff, "+two") {
				r.fails("asked %+v", r.asked)
			}
			r.kept("write-" + strings.Trim(filepath.Dir(c.path)+string(c.may), "."))
		})
	}
}

// writeFileModel has qwen-code write a file, and then says that it is done.
func writeFileModel(w http.ResponseWriter, req *http.Request, path string) {
	var q struct {
		Stream   bool
		Messages []struct{ Role string }
	}
	if err := json.NewDecoder(req.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	did := slices.ContainsFunc(q.Messages, func(m struct{ Role string }) bool { return m.Role == "tool" })
	delta, reason := map[string]any{"role": "assistant", "content": "All done."}, "stop"
	if !did && q.Stream {
		args, _ := json.Marshal(map[string]string{"file_path": path, "content": "two\nlines\n"}) // strings
		delta = map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{"index": 0, "id": "call_1", "type": "function",
			"function": map[string]string{"name": "write_file", "arguments": string(args)}}}}
		reason = "tool_calls"
	}
	usage := map[string]int{"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
	answer := func(kind, part string) []byte {
		data, _ := json.Marshal(map[string]any{"id": "c", "object": kind, "created": 1, "model": "m", "usage": usage, // plain values
			"choices": []any{map[string]any{"index": 0, part: delta, "finish_reason": reason}}})
		return data
	}
	if !q.Stream {
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer("chat.completion", "message"))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", answer("chat.completion.chunk", "delta"))
}
