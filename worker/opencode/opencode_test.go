package opencode

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/opencode/relay"
	"github.com/agentsched/agentsched/worker/workertest"
)

func task(t *testing.T) (task *worker.Task, userHome string) {
	task, userHome = workertest.UserTask(t, program.Name, "1.18.33", ".config/opencode", ".config/git", ".local/share/opencode")
	task.Name, task.Model = "my-job", "anthropic/claude-x"
	return task, userHome
}

func start(t *testing.T, task *worker.Task) worker.Command {
	t.Helper()
	s, err := Adapter{}.Start(task)
	if err != nil {
		t.Fatal(err)
	}
	return s.Command()
}

// begin starts a session, and returns what it writes until the program has its prompt.
func begin(s worker.Session) string {
	var said strings.Builder
	for _, in := range []worker.Input{worker.Started{}, worker.Output{Line: []byte(`{"id":1,"status":200,"body":{"id":"ses_new"}}`)}} {
		for _, a := range s.Step(workertest.Now, in) {
			if w, ok := a.(worker.Write); ok {
				said.Write(w.Data)
			}
		}
	}
	return said.String()
}

// resumes reports whether a run goes on with a session.
func resumes(t *testing.T, tk *worker.Task, id string) bool {
	t.Helper()
	s, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(begin(s), "/session/"+id+"/prompt_async")
}

func config(t *testing.T, tk *worker.Task) map[string]any {
	t.Helper()
	return workertest.ReadJSON(t, filepath.Join(tk.Scratch, "opencode.json"))
}

func TestLocateAndVersion(t *testing.T) {
	tk, _ := task(t)
	workertest.CheckProgram(t, Adapter{}, tk, "1.18.33", "npm install -g opencode-ai")
}

// TestPermissions holds what each set of capabilities comes to, in the order
// that decides: the last rule that matches wins.
func TestPermissions(t *testing.T) {
	const none = `{"*":"ask","external_directory":{"*":"ask","/d/tool-output/*":"allow"}`
	const read = `,"read":{"*":"allow","*.env":"ask","*.env.*":"ask","*.env.example":"allow"},"glob":"allow","grep":"allow","list":"allow","todowrite":"allow","todoread":"allow","task":{"*":"ask","explore":"allow","general":"allow"}`
	for _, c := range []struct {
		name  string
		caps  []job.Capability
		allow []string
		want  string
	}{
		{"none", nil, nil, none + `}`},
		{"read", []job.Capability{job.CanRead}, nil, none + read + `}`},
		{"edit", []job.Capability{job.CanRead, job.CanEdit}, nil, none + read + `,"edit":"allow"}`},
		{"any command", []job.Capability{job.CanRunCommands}, nil, `{"*":"ask","external_directory":"allow","bash":"allow"}`},
		{"any command and tests", []job.Capability{job.CanRunCommands, job.CanRunTests}, nil, `{"*":"ask","external_directory":"allow","bash":"allow"}`},
		{"some commands", []job.Capability{job.CanRunCommands}, []string{"go test *", "make"},
			none + `,"bash":{"*":"ask","go test":"allow","go test *":"allow","make":"allow","*>*":"ask"}}`},
		{"a redirection that is allowed", []job.Capability{job.CanRunCommands}, []string{"go test * > log", "ls *"},
			none + `,"bash":{"*":"ask","ls":"allow","ls *":"allow","*>*":"ask","go test * > log":"allow"}}`},
		{"network", []job.Capability{job.CanUseNetwork}, nil, none + `,"webfetch":"allow","websearch":"allow","codesearch":"allow"}`},
	} {
		var got bytes.Buffer // as it reaches the file: without the escapes of HTML
		enc := json.NewEncoder(&got)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(permissions(&worker.Task{Capabilities: c.caps, AllowCommands: c.allow}, "/d")); err != nil {
			t.Fatal(err)
		}
		if plain := strings.ReplaceAll(strings.TrimSpace(got.String()), `\u003e`, ">"); plain != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, plain, c.want)
		}
	}
	tests, err := json.Marshal(permissions(&worker.Task{Capabilities: []job.Capability{job.CanRunTests}}, "/d"))
	if err != nil || !strings.Contains(string(tests), `"bash":{"*":"ask","go test":"allow","go test *":"allow"`) {
		t.Errorf("tests only: %s, %v", tests, err)
	}
}

// TestCommandLine holds the parts that do not depend on capabilities.
func TestCommandLine(t *testing.T) {
	tk, _ := task(t)
	tk.Output, tk.SystemPrompt = []byte(`{"type":"object"}`), "-be brief"
	tk.Settings.Command = append(tk.Settings.Command, "--leading")
	workertest.Write(t, filepath.Join(tk.Dir, "AGENTS.md"), "rules of the repository")
	c := start(t, tk)
	if want := []string{"--leading", "serve", "--hostname=127.0.0.1", "--port=0", "--pure", "--print-logs", "--log-level=ERROR"}; c.Args[0] != relay.Command || !slices.Equal(c.Args[2:], want) || c.Dir != tk.Dir {
		t.Errorf("args %q, dir %q", c.Args, c.Dir)
	}
	s, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	said := begin(s)
	for _, want := range []string{`"title":"my-job"`, `"agent":"agentsched"`, `"text":"-do it\n`, `{\"type\":\"object\"}\n"`} {
		if !strings.Contains(said, want) {
			t.Errorf("no %s in %s", want, said)
		}
	}
	system := filepath.Join(tk.Scratch, "system-prompt.md")
	want := []any{filepath.Join(tk.Dir, "AGENTS.md"), system}
	if got := config(t, tk)["instructions"].([]any); !slices.Equal(got, want) || string(workertest.Read(t, system)) != "-be brief" {
		t.Errorf("instructions %v, want %v", got, want)
	}
	agent := config(t, tk)["agent"].(map[string]any)["agentsched"].(map[string]any)
	if agent["permission"].(map[string]any)["*"] != "ask" {
		t.Errorf("agent %v", agent)
	}
	for _, want := range []string{"OPENCODE_DISABLE_PROJECT_CONFIG=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_CONFIG=" + filepath.Join(tk.Scratch, "opencode.json")} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("no %s in %q", want, c.Env)
		}
	}
}

// TestHome checks that the user's login is reused and that nothing of the
// user's that grants anything is.
func TestHome(t *testing.T) {
	tk, user := task(t)
	users := map[string]string{
		".local/share/opencode/auth.json": `{"anthropic":{"type":"api","key":"sk"}}`,
		".config/opencode/opencode.jsonc": `{ // mine
			"provider": {"gate": {"options": {"apiKey": "{env:GATE_KEY}", "baseURL": "http://127.0.0.1:1//v1"}},}, /* and more */
			"permission": {"bash": "allow"}, "mcp": {"evil": {}}, "plugin": ["evil"], "agent": {"agentsched": {"permission": "allow"}},
		}`,
		".config/git/config": "[user]\n",
	}
	for name, content := range users {
		workertest.Write(t, filepath.Join(user, name), content)
	}
	tk.Lookup = workertest.Lookup("GATE_KEY", "k")
	c := start(t, tk)

	data, conf := filepath.Join(tk.Home, "data"), filepath.Join(tk.Home, "config")
	if target, err := os.Readlink(filepath.Join(data, "opencode", "auth.json")); err != nil || target != filepath.Join(user, ".local/share/opencode/auth.json") {
		t.Errorf("login %q, %v", target, err)
	}
	if got := workertest.Read(t, filepath.Join(conf, "git", "config")); string(got) != users[".config/git/config"] {
		t.Errorf("git's configuration as commands see it: %q", got)
	}
	for _, want := range []string{"XDG_DATA_HOME=" + data, "XDG_CONFIG_HOME=" + conf, "HOME=" + user, "GATE_KEY=k"} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("no %s in %q", want, c.Env)
		}
	}
	if slices.ContainsFunc(c.Env, func(kv string) bool { return strings.HasPrefix(kv, "XDG_CACHE_HOME=") }) {
		t.Error("the cache is not the user's")
	}
	got := config(t, tk)
	if got["permission"].(map[string]any)["bash"] != nil {
		t.Errorf("permission %v", got["permission"])
	}
	for _, key := range []string{"mcp", "plugin"} {
		if _, ok := got[key]; ok {
			t.Errorf("%s was taken over", key)
		}
	}
	gate := got["provider"].(map[string]any)["gate"].(map[string]any)["options"].(map[string]any)
	if gate["apiKey"] != "{env:GATE_KEY}" || gate["baseURL"] != "http://127.0.0.1:1//v1" {
		t.Errorf("provider %v", gate)
	}
	if agent := got["agent"].(map[string]any)["agentsched"].(map[string]any); agent["permission"].(map[string]any)["*"] != "ask" {
		t.Errorf("agent %v", agent)
	}
	for name, content := range users {
		if data := workertest.Read(t, filepath.Join(user, name)); string(data) != content {
			t.Errorf("the user's %s became %q", name, data)
		}
	}
	start(t, tk) // a second attempt finds the links of the first
}

// TestAnotherEndpoint checks that it gets its own key, nobody's login, and that
// the key is in no file.
func TestAnotherEndpoint(t *testing.T) {
	tk, user := task(t)
	workertest.Write(t, filepath.Join(user, ".local/share/opencode/auth.json"), "{}")
	tk.Model, tk.Settings.BaseURL, tk.Settings.KeyEnv = "vendor/model", "http://127.0.0.1:1/v1", "GATE_KEY"
	tk.Lookup = workertest.Lookup("GATE_KEY", "very-secret")
	s, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	if said := begin(s); !strings.Contains(said, `{"providerID":"agentsched","modelID":"vendor/model"}`) || !slices.Contains(s.Command().Env, "GATE_KEY=very-secret") {
		t.Errorf("says %s, env %q", said, s.Command().Env)
	}
	if file := workertest.Read(t, filepath.Join(tk.Scratch, "opencode.json")); bytes.Contains(file, []byte("very-secret")) || !bytes.Contains(file, []byte("{env:GATE_KEY}")) {
		t.Errorf("configuration %s", file)
	}
	if _, err := os.Lstat(filepath.Join(tk.Home, "data/opencode/auth.json")); err == nil {
		t.Error("the user's login is in reach")
	}
	tk.Model = ""
	var f *worker.Failure
	if _, err := (Adapter{}).Start(tk); !errors.As(err, &f) || f.Class != job.Config {
		t.Errorf("no model: %v", err)
	}
}

// TestKeys checks which keys reach the program.
func TestKeys(t *testing.T) {
	for model, name := range map[string]string{
		"anthropic/x": "ANTHROPIC_API_KEY", "openai/x": "OPENAI_API_KEY", "google/x": "GEMINI_API_KEY", "": "OPENROUTER_API_KEY", "my-host/x": "MY_HOST_API_KEY",
	} {
		tk, _ := task(t)
		tk.Model, tk.Lookup = model, workertest.Lookup(name, "k")
		if c := start(t, tk); !slices.Contains(c.Env, name+"=k") {
			t.Errorf("model %q: no %s", model, name)
		}
	}
	tk, _ := task(t)
	tk.Lookup = workertest.Lookup("OPENAI_API_KEY", "k")
	if c := start(t, tk); slices.Contains(c.Env, "OPENAI_API_KEY=k") {
		t.Error("anthropic gets the key of openai")
	}
}

// TestResume checks that a session is resumed where any is recorded, and that
// one that is lost starts anew.
func TestResume(t *testing.T) {
	tk, _ := task(t)
	tk.Session = "ses_1"
	if resumes(t, tk, "ses_1") {
		t.Error("a session is resumed that is not there")
	}
	s, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	if events := workertest.Play(s).Event([]byte(`{"event":{"type":"other"}}`)); len(events) != 1 || events[0].Kind != job.EventWarning {
		t.Errorf("events %+v", events)
	}
	db := filepath.Join(tk.Home, "data", "opencode", "opencode.db")
	workertest.Write(t, db, "of another session: ses_2")
	if resumes(t, tk, "ses_1") {
		t.Error("a session is resumed that is not among those recorded")
	}
	workertest.Write(t, db, "content ses_1")
	if !resumes(t, tk, "ses_1") {
		t.Error("the session is not resumed")
	}
	if got := workertest.Read(t, db); string(got) != "content ses_1" {
		t.Errorf("the earlier attempt's content: %q", got)
	}
}

// TestSearchForASession has an agent's files in the home beside the program's.
func TestSearchForASession(t *testing.T) {
	h := home{data: t.TempDir()}
	dir := filepath.Join(h.data, program.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "a.db"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "b.db")); err != nil {
		t.Fatal(err)
	}
	if h.hasSession("ses_1") {
		t.Error("a session was found in no file")
	}
	// The id lies across two pieces of the file.
	text := strings.Repeat("x", 1<<20-2) + "ses_1" + strings.Repeat("x", 100)
	if err := os.WriteFile(filepath.Join(dir, "c.db-wal"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if !h.hasSession("ses_1") || h.hasSession("ses_2") {
		t.Error("the session was not found, or another")
	}
}
