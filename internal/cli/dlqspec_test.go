package cli

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/job"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// readBack is what a job file says, in the words of the specification.
func readBack(t testing.TB, f *jobFile) job.Spec {
	t.Helper()
	text, err := f.bytes()
	if err != nil {
		t.Fatal(err)
	}
	specs, err := jobfile.Decode("edited", text, jobfile.Options{Now: noon})
	if err != nil || len(specs) != 1 {
		t.Fatalf("%s\nis read as %v, %v", text, specs, err)
	}
	return specs[0]
}

// words are texts that YAML could take for something else.
var words = rapid.OneOf(
	rapid.SampledFrom([]string{"yes", "null", "~", "0x1f", "1e3", "- a", "a: b", "# no", "'", "\"", "a\nb\n", "a\n\n  b", " lead", "trail ", "tab\tinside", "a\r\nb", "\u2028", "%a", "@b", "`c`", "{", "[", "|", ">", "&x", "*y", "!z", "2026-01-01", "\x01", "ü漢🙂", "a #b", "\n", "x\n "}),
	rapid.StringN(1, 40, 200),
)

// TestJobFileSaysTheSame: what is edited and not changed is what it was.
func TestJobFileSaysTheSame(t *testing.T) {
	dir := t.TempDir()
	of := job.Parcel{Digest: strings.Repeat("a", 64), Sub: "web", Folder: "/home/ann/site/web"}
	nameless := job.Parcel{Digest: strings.Repeat("b", 64)}
	parcels := map[string]job.Parcel{parcelPath(&of): of, parcelPath(&nameless): nameless}
	nameless.Folder = parcelPath(&nameless)
	rapid.Check(t, func(t *rapid.T) {
		maybe := func(name string) string {
			if rapid.Bool().Draw(t, "has "+name) {
				return words.Draw(t, name)
			}
			return ""
		}
		later := noon.Add(time.Hour + time.Millisecond)
		s := job.Spec{
			Name: "fix-login", Tenant: job.Tenant(rapid.SampledFrom([]string{"default", "yes", "007"}).Draw(t, "tenant")), Type: job.WorkerTask, Worker: "codex",
			Model: maybe("model"), Workspace: job.Workspace{Isolation: job.NoWorkspace},
			Instructions: words.Draw(t, "instructions"), SystemPrompt: maybe("prompt"), Verify: maybe("verify"), Trace: maybe("trace"),
			Capabilities: rapid.SampledFrom([][]job.Capability{nil, {job.CanRead}, {job.CanRead, job.CanRunCommands}}).Draw(t, "can"),
			Priority:     rapid.IntRange(-5, 5).Draw(t, "priority"), Class: rapid.SampledFrom([]job.Class{"", job.Batch}).Draw(t, "class"),
			Agent: "agent-7", Domain: "legal", Expect: job.Expectation{Tokens: 5}, Context: job.Context{CorrelationID: "007", UserID: "yes"},
			Limits: job.Limits{Timeout: job.DefaultTimeout, MaxAttempts: job.DefaultMaxAttempts, MaxCostUSD: 0.25, MaxCommandTime: job.Duration(90 * time.Second), RetryBudget: job.RetryBudget{CostUSD: 3}},
		}
		if rapid.Bool().Draw(t, "folder") {
			s.Workspace = rapid.SampledFrom([]job.Workspace{
				{Isolation: job.Copy, Path: dir}, {Isolation: job.Worktree, Repo: "https://example.com/a.git", Base: "main"},
				{Isolation: job.Worktree, Parcel: of}, {Isolation: job.Worktree, Parcel: nameless},
			}).Draw(t, "workspace")
		}
		if rapid.Bool().Draw(t, "more") {
			s.Fallback = []job.Choice{{Worker: "claude", Model: "a:b"}, {Worker: "shell"}}
			s.Env = []string{"HTTPS_PROXY"}
			s.Deadline, s.RunnableAt = &later, &noon // the one is ahead, the other is not
			s.Output = json.RawMessage(`{"type":"object","required":["b","a"],"properties":{"b":{"type":"string"},"a":{"enum":[1,2.5,true,null,"yes"]}}}`)
		}
		if len(s.Validate()) > 0 {
			t.Skip("no job file could have said that")
		}
		if rapid.Bool().Draw(t, "event") {
			s.Type, s.Worker, s.Model, s.Fallback = job.PluginEvent, "shell", "", nil
			s.Payload = json.RawMessage(rapid.SampledFrom([]string{`{"b":"yes","a":[1,null,{"on":"${{ x }}"}]}`, `"007"`, `[]`, `1.5`}).Draw(t, "payload"))
		}
		f, err := newJobFile(&s, noon)
		if err != nil {
			t.Fatal(err)
		}
		text, err := f.bytes()
		if err != nil {
			t.Fatal(err)
		}
		specs, err := jobfile.Decode("edited", text, jobfile.Options{Now: noon, Parcels: parcels})
		if err != nil {
			t.Fatalf("%s\nis refused: %v", text, err)
		}
		s.RunnableAt = nil
		if got := specs[0]; !same(got, s) {
			t.Fatalf("%s\nis read as\n%+v, want\n%+v", text, got, s)
		}
	})
}

// TestJobFileSaysEachField: no field of a job is lost when it is written as a job file, those that are added later neither.
func TestJobFileSaysEachField(t *testing.T) {
	later := noon.Add(time.Hour)
	base := func() job.Spec {
		return job.Spec{Name: "fix", Tenant: "default", Type: job.WorkerTask, Worker: "codex", Instructions: "go", Workspace: job.Workspace{Isolation: job.NoWorkspace},
			Limits: job.Limits{Timeout: job.DefaultTimeout, MaxAttempts: job.DefaultMaxAttempts}, Capabilities: []job.Capability{job.CanRead, job.CanRunCommands}}
	}
	changes := map[string]func(*job.Spec){
		"Name": func(s *job.Spec) { s.Name = "other" }, "Tenant": func(s *job.Spec) { s.Tenant = "t" }, "Type": func(s *job.Spec) { s.Type, s.Capabilities = job.LLM, nil },
		"Worker": func(s *job.Spec) { s.Worker = "claude" }, "Model": func(s *job.Spec) { s.Model = "m" }, "Fallback": func(s *job.Spec) { s.Fallback = []job.Choice{{Worker: "claude", Model: "m"}} },
		"Workspace": func(s *job.Spec) {
			s.Workspace = job.Workspace{Isolation: job.Worktree, Repo: "https://example.com/a.git", Base: "main"}
		},
		"Node": func(s *job.Spec) { s.Node = job.Node{OS: "linux", Has: []string{"gpu=yes"}} }, "Instructions": func(s *job.Spec) { s.Instructions = "stop" },
		"SystemPrompt": func(s *job.Spec) { s.SystemPrompt = "be kind" }, "Capabilities": func(s *job.Spec) { s.Capabilities = []job.Capability{job.CanRead, job.CanEdit} },
		"AllowCommands": func(s *job.Spec) { s.AllowCommands = []string{"go test *"} }, "Env": func(s *job.Spec) { s.Env = []string{"A"} },
		"Sandbox": func(s *job.Spec) { s.Sandbox = job.Sandbox{Level: job.SandboxStrict, Write: []string{"/srv/cache"}} },
		"Network": func(s *job.Spec) { s.Network = []string{"npm", "*.example.com:8443"} },
		"Git":     func(s *job.Spec) { s.Git = []job.Repository{{Repository: "github.com/a/b", Push: true}} },
		"Ask": func(s *job.Spec) {
			s.Ask = job.Ask{For: []job.AskFor{"commands", "words"}, Wait: job.Duration(5 * time.Minute), Rules: []job.AskRule{{Command: "go test *", Answer: job.AllowAsked}, {Command: "git push *", Answer: job.DenyAsked, Because: "a person pushes"}}}
		},
		"Secrets": func(s *job.Spec) { s.Secrets = []string{"NPM_TOKEN"} }, "Priority": func(s *job.Spec) { s.Priority = 3 }, "Class": func(s *job.Spec) { s.Class = job.Batch },
		"RunnableAt": func(s *job.Spec) { s.RunnableAt = &later }, "Deadline": func(s *job.Spec) { s.Deadline = &later }, "Limits": func(s *job.Spec) { s.Limits.MaxTokens = 5 },
		"Key": func(s *job.Spec) { s.Key = "k" }, "OnDuplicate": func(s *job.Spec) { s.Key, s.OnDuplicate = "k", job.Serialize }, "Turn": func(s *job.Spec) { s.OnDuplicate, s.Turn = job.Serialize, "t" },
		"Output": func(s *job.Spec) { s.Output = json.RawMessage(`{"type":"object"}`) }, "Verify": func(s *job.Spec) { s.Verify = "make test" }, "Agent": func(s *job.Spec) { s.Agent = "agent-7" },
		"Payload": func(s *job.Spec) {
			s.Type, s.Worker, s.Payload = job.PluginEvent, "shell", json.RawMessage(`{"a":1}`)
		},
		"Expect": func(s *job.Spec) { s.Expect.Tokens = 5 }, "Domain": func(s *job.Spec) { s.Domain = "legal" }, "Trace": func(s *job.Spec) { s.Trace = "t1" }, "Context": func(s *job.Spec) { s.Context.UserID = "u" },
	}
	// What put it in the queue is not said by a file, nor whose agent did, and its place in a workflow is the letter's, whatever is edited.
	said := []string{"Trigger", "Lead", "Flow"}
	for i := range reflect.TypeFor[job.Spec]().NumField() {
		name := reflect.TypeFor[job.Spec]().Field(i).Name
		if slices.Contains(said, name) {
			continue
		}
		change := changes[name]
		if change == nil {
			t.Errorf("the test says nothing of %s", name)
			continue
		}
		s := base()
		change(&s)
		f, err := newJobFile(&s, noon)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, plain := readBack(t, f), base(); !same(got, s) || same(s, plain) {
			text, _ := f.bytes()
			t.Errorf("%s is lost:\n%s\nis read as\n%+v, want\n%+v", name, text, got, s)
		}
	}
}

// same compares as JSON does: none is none, and a schema is one however it is written.
func same(a, b job.Spec) bool {
	var x, y any
	for _, one := range []struct {
		spec job.Spec
		into *any
	}{{a, &x}, {b, &y}} {
		text, err := json.Marshal(one.spec)
		if err != nil || json.Unmarshal(text, one.into) != nil {
			return false
		}
	}
	return reflect.DeepEqual(x, y)
}

// What a person opens in an editor is YAML of lines, not JSON.
func TestJobFileIsForPeople(t *testing.T) {
	s := job.Spec{Name: "fix", Tenant: "web", Type: job.Tool, Worker: "shell", Workspace: job.Workspace{Isolation: job.NoWorkspace}, Instructions: "echo one\necho two\n", Capabilities: []job.Capability{job.CanRead}}
	f, err := newJobFile(&s, noon)
	if err != nil {
		t.Fatal(err)
	}
	text, err := f.bytes()
	want := "tenant: web\njobs:\n  - id: fix\n    type: TOOL\n    worker: shell\n    instructions: |\n      echo one\n      echo two\n    capabilities:\n      - read\n"
	if err != nil || string(text) != want {
		t.Errorf("got\n%s%v, want\n%s", text, err, want)
	}
}

func TestJobFileSet(t *testing.T) {
	base := job.Spec{Name: "fix", Tenant: "web", Type: job.WorkerTask, Worker: "codex", Model: "m", Workspace: job.Workspace{Isolation: job.NoWorkspace},
		Instructions: "do it", Capabilities: []job.Capability{job.CanRead}, Limits: job.Limits{Timeout: job.Duration(time.Minute), MaxAttempts: 3}}
	for _, tt := range []struct {
		set    string
		change func(*job.Spec)
		want   string // in the error
	}{
		{"instructions=do that: now", func(s *job.Spec) { s.Instructions = "do that: now" }, ""},
		{"model=", func(s *job.Spec) { s.Model = "" }, ""},
		{`model="5"`, func(s *job.Spec) { s.Model = "5" }, ""},
		{"tenant=shop", func(s *job.Spec) { s.Tenant = "shop" }, ""},
		{"limits.timeout=2h", func(s *job.Spec) { s.Limits.Timeout = job.Duration(2 * time.Hour) }, ""},
		{"limits.max_attempts=5", func(s *job.Spec) { s.Limits.MaxAttempts = 5 }, ""},
		{"limits.retry_budget.cost_usd=1.5", func(s *job.Spec) { s.Limits.RetryBudget.CostUSD = 1.5 }, ""},
		{"capabilities=[read, edit]", func(s *job.Spec) { s.Capabilities = []job.Capability{job.CanRead, job.CanEdit} }, ""},
		{"limits=", func(s *job.Spec) { s.Limits.Timeout = job.DefaultTimeout }, ""},
		{"class=batch", func(s *job.Spec) { s.Class = job.Batch }, ""},
		{"nothing", nil, "want FIELD=VALUE"},
		{"=x", nil, "want FIELD=VALUE"},
		{"model.name=x", nil, "model holds no fields"},
		{"fallback=[a", nil, "is not YAML"},
	} {
		t.Run(tt.set, func(t *testing.T) {
			f, err := newJobFile(&base, noon)
			if err != nil {
				t.Fatal(err)
			}
			err = f.set(tt.set)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := base
			tt.change(&want)
			if got := readBack(t, f); !same(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
