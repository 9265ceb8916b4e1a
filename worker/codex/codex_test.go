package codex

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

func task(t *testing.T) (task *worker.Task, userHome string) {
	return workertest.UserTask(t, program.Name, "codex-cli 0.169.0", ".codex")
}

func start(t *testing.T, task *worker.Task) worker.Command {
	t.Helper()
	s, err := Adapter{}.Start(task)
	if err != nil {
		t.Fatal(err)
	}
	return s.Command()
}

func TestLocateAndVersion(t *testing.T) {
	tk, _ := task(t)
	workertest.CheckProgram(t, Adapter{}, tk, "0.169.0", "npm install -g @openai/codex")
}

// TestGrants holds what each set of capabilities comes to.
func TestGrants(t *testing.T) {
	for _, c := range []struct {
		name            string
		caps            []job.Capability
		allow           []string
		asked, confined bool

		sandbox, web, network string
		shell, asks           bool
	}{
		{name: "none", sandbox: "read-only", web: "disabled", network: "false"},
		{name: "none, and people are asked", asked: true, sandbox: "read-only", web: "disabled", network: "false", shell: true, asks: true},
		{name: "read", caps: []job.Capability{job.CanRead}, sandbox: "read-only", web: "disabled", network: "false", shell: true},
		{name: "edit", caps: []job.Capability{job.CanRead, job.CanEdit}, sandbox: "workspace-write", web: "disabled", network: "false", shell: true},
		{name: "edit, confined", caps: []job.Capability{job.CanRead, job.CanEdit}, confined: true, sandbox: "danger-full-access", web: "disabled", shell: true},
		{name: "commands", caps: []job.Capability{job.CanRead, job.CanEdit, job.CanRunCommands}, sandbox: "workspace-write", web: "disabled", network: "false", shell: true},
		{name: "commands, and rules are asked", caps: []job.Capability{job.CanEdit, job.CanRunCommands}, asked: true, confined: true, sandbox: "danger-full-access", web: "disabled", shell: true, asks: true},
		{name: "commands that may not write", caps: []job.Capability{job.CanRunCommands}, sandbox: "read-only", web: "disabled", network: "false", shell: true},
		{name: "network", caps: []job.Capability{job.CanEdit, job.CanUseNetwork}, sandbox: "workspace-write", web: "live", network: "true", shell: true},
		{name: "any command, tests too", caps: []job.Capability{job.CanEdit, job.CanRunCommands, job.CanRunTests}, sandbox: "workspace-write", web: "disabled", network: "false", shell: true},
		{name: "some commands", caps: []job.Capability{job.CanEdit, job.CanRunCommands}, allow: []string{"go test *"}, sandbox: "workspace-write", web: "disabled", network: "false", shell: true, asks: true},
		{name: "commands without the capability", caps: []job.Capability{job.CanEdit}, allow: []string{"go test *"}, sandbox: "workspace-write", web: "disabled", network: "false", shell: true, asks: true},
		{name: "tests only", caps: []job.Capability{job.CanRead, job.CanEdit, job.CanRunTests}, sandbox: "workspace-write", web: "disabled", network: "false", shell: true, asks: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tk, _ := task(t)
			tk.Capabilities, tk.AllowCommands, tk.Asked, tk.Confined = c.caps, c.allow, c.asked, c.confined
			s, err := Adapter{}.Start(tk)
			if err != nil {
				t.Fatal(err)
			}
			policy := map[bool]string{true: "untrusted", false: "never"}[c.asks]
			if p := begins(t, s, "thread/start"); p["sandbox"] != c.sandbox || p["approvalPolicy"] != policy || p["cwd"] != tk.Dir {
				t.Errorf("the thread is started with %v, want sandbox %s, policy %s", p, c.sandbox, policy)
			}
			args := s.Command().Args
			want := []string{`web_search="` + c.web + `"`, "features.hooks=false"}
			if c.network != "" {
				want = append(want, "sandbox_workspace_write.network_access="+c.network)
			}
			for _, want := range want {
				if !slices.Contains(args, want) {
					t.Errorf("no %s in %q", want, args)
				}
			}
			if off := slices.Contains(args, "features.shell_tool=false"); off == c.shell {
				t.Errorf("shell tool off: %v, want %v", off, !c.shell)
			}
			if ask := slices.Contains(args, "features.default_mode_request_user_input=true"); ask != c.asked {
				t.Errorf("the agent may ask for words: %v, want %v", ask, c.asked)
			}
		})
	}
}

const helloLine = `{"id":1,"result":{"userAgent":"agentsched/0.169.0 (x)"}}`

// begins returns the parameters of the request that follows the handshake, which must be of a method.
func begins(t *testing.T, s worker.Session, method string) map[string]any {
	t.Helper()
	s.Step(workertest.Now, worker.Started{})
	for _, a := range s.Step(workertest.Now, worker.Output{Line: []byte(helloLine)}) {
		w, ok := a.(worker.Write)
		if !ok {
			continue
		}
		var r struct {
			Method string
			Params map[string]any
		}
		if err := json.Unmarshal(w.Data, &r); err != nil {
			t.Fatal(err)
		}
		if r.Method == method {
			return r.Params
		}
	}
	t.Fatalf("no %s follows the handshake", method)
	return nil
}

// TestCommandLine holds the parts that do not depend on capabilities.
func TestCommandLine(t *testing.T) {
	tk, _ := task(t)
	tk.Model, tk.Output, tk.SystemPrompt = "gpt-x", []byte(`{"type":"object"}`), "be \"brief\"\n-now"
	tk.Settings.Command = append(tk.Settings.Command, "--leading")
	s, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Command()
	if c.Args[0] != "--leading" || c.Args[1] != "app-server" || !c.KeepStdin || len(c.Stdin) > 0 || c.Dir != tk.Dir || slices.Contains(c.Args, "-do it") {
		t.Errorf("command %+v", c)
	}
	if p := begins(t, s, "thread/start"); p["model"] != "gpt-x" {
		t.Errorf("the thread is started with %v", p)
	}
	var first string
	for _, a := range s.Step(workertest.Now, worker.Output{Line: []byte(`{"id":2,"result":{"thread":{"id":"t"}}}`)}) {
		if w, ok := a.(worker.Write); ok {
			first += string(w.Data)
		}
	}
	if want := `{"id":3,"method":"turn/start","params":{"threadId":"t","input":[{"type":"text","text":"-do it"}],"outputSchema":{"type":"object"}}}` + "\n"; first != want {
		t.Errorf("the first turn: %s", first)
	}
	if got := config(t, tk)["developer_instructions"]; got != tk.SystemPrompt {
		t.Errorf("system prompt %q", got)
	}
	for _, text := range []string{strings.Repeat("ä", maxPrompt+1), strings.Repeat("\x01", maxPrompt)} {
		tk.Instructions = text
		var f *worker.Failure
		if _, err := (Adapter{}).Start(tk); !errors.As(err, &f) || f.Class != job.Config {
			t.Errorf("prompt that is too long: %v", err)
		}
	}
}

func config(t *testing.T, tk *worker.Task) map[string]any {
	t.Helper()
	var c map[string]any
	if _, err := toml.DecodeFile(filepath.Join(tk.Home, "codex", "config.toml"), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestHome checks that the user's login is reused and that nothing of the
// user's that grants anything is.
func TestHome(t *testing.T) {
	tk, user := task(t)
	users := map[string]string{
		"auth.json": `{"OPENAI_API_KEY":"sk"}`,
		"config.toml": "model = \"gpt-mine\"\nmodel_provider = \"mine\"\napproval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n" +
			"notify = [\"touch\", \"x\"]\n[mcp_servers.evil]\ncommand = \"evil\"\n[sandbox_workspace_write]\nnetwork_access = true\nwritable_roots = [\"/\"]\n" +
			"[projects.\"/\"]\ntrust_level = \"trusted\"\n[model_providers.mine]\nname = \"Mine\"\nbase_url = \"http://127.0.0.1:1/v1\"\nenv_key = \"MINE_KEY\"\nrequest_max_retries = 9\n",
	}
	for name, content := range users {
		workertest.Write(t, filepath.Join(user, ".codex", name), content)
	}
	tk.Lookup = workertest.Lookup("MINE_KEY", "secret")
	c := start(t, tk)

	dir := filepath.Join(tk.Home, "codex")
	if target, err := os.Readlink(filepath.Join(dir, "auth.json")); err != nil || target != filepath.Join(user, ".codex", "auth.json") {
		t.Errorf("login %q, %v", target, err)
	}
	for _, want := range []string{"CODEX_HOME=" + dir, "HOME=" + user, "MINE_KEY=secret", "TMPDIR=" + filepath.Join(tk.Scratch, "tmp")} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("no %s in %q", want, c.Env)
		}
	}
	got := config(t, tk)
	for _, key := range []string{"mcp_servers", "notify", "sandbox_mode", "approval_policy"} {
		if _, ok := got[key]; ok {
			t.Errorf("%s was taken over", key)
		}
	}
	want := map[string]any{tk.Dir: map[string]any{"trust_level": "untrusted"}}
	if real, err := filepath.EvalSymlinks(tk.Dir); err == nil {
		want[real] = want[tk.Dir]
	}
	if !reflect.DeepEqual(got["projects"], want) {
		t.Errorf("trusts %v", got["projects"])
	}
	if got["model"] != "gpt-mine" || got["model_provider"] != "mine" {
		t.Errorf("model %v of %v", got["model"], got["model_provider"])
	}
	mine := got["model_providers"].(map[string]any)["mine"].(map[string]any)
	if mine["request_max_retries"] != int64(0) || mine["stream_max_retries"] != int64(0) || mine["base_url"] != "http://127.0.0.1:1/v1" {
		t.Errorf("provider %v", mine)
	}
	sandbox := got["sandbox_workspace_write"].(map[string]any)
	if sandbox["network_access"] != false || len(sandbox["writable_roots"].([]any)) != 2 || sandbox["exclude_slash_tmp"] != true {
		t.Errorf("sandbox %v", sandbox)
	}
	if hidden := got["shell_environment_policy"].(map[string]any)["exclude"].([]any); !slices.Contains(hidden, any("MINE_KEY")) {
		t.Errorf("commands see the key: %v", hidden)
	}
	for name, content := range users {
		if data := workertest.Read(t, filepath.Join(user, ".codex", name)); string(data) != content {
			t.Errorf("the user's %s became %q", name, data)
		}
	}
}

// TestLogs checks that Codex logs what the adapter reads, besides what the user
// wants, and that the commands of its agent log as ever.
func TestLogs(t *testing.T) {
	for own, want := range map[string]string{"": "error," + logFilter, "warn,my=trace": "warn,my=trace," + logFilter} {
		tk, _ := task(t)
		tk.Lookup = workertest.Lookup("RUST_LOG", "trace") // the scheduler's own
		if own != "" {
			tk.Environ = append(tk.Environ, "RUST_LOG="+own)
		}
		if c := start(t, tk); !slices.Contains(c.Env, "RUST_LOG="+want) {
			t.Errorf("%q: no RUST_LOG=%s in %q", own, want, c.Env)
		}
		shell := config(t, tk)["shell_environment_policy"].(map[string]any)
		set, _ := shell["set"].(map[string]any)
		if got, _ := set["RUST_LOG"].(string); got != own || !slices.Contains(shell["exclude"].([]any), any("RUST_LOG")) {
			t.Errorf("%q: commands get %v", own, shell)
		}
	}
}

// TestProviders covers who is asked, with whose key.
func TestProviders(t *testing.T) {
	t.Run("another endpoint", func(t *testing.T) {
		tk, _ := task(t)
		tk.Settings.BaseURL, tk.Settings.KeyEnv = "http://127.0.0.1:1/v1", "GATE_KEY"
		tk.Lookup = workertest.Lookup("GATE_KEY", "k")
		c := start(t, tk)
		def := config(t, tk)["model_providers"].(map[string]any)[providerID].(map[string]any)
		if def["base_url"] != tk.Settings.BaseURL || def["env_key"] != "GATE_KEY" || def["wire_api"] != "responses" || def["requires_openai_auth"] != nil {
			t.Errorf("provider %v", def)
		}
		if !slices.Contains(c.Env, "GATE_KEY=k") {
			t.Errorf("no key in %q", c.Env)
		}
	})
	t.Run("openai by key", func(t *testing.T) {
		tk, _ := task(t)
		tk.Lookup = workertest.Lookup("OPENAI_API_KEY", "k")
		if c := start(t, tk); !slices.Contains(c.Env, "CODEX_API_KEY=k") {
			t.Errorf("no key in %q", c.Env)
		}
	})
	t.Run("openai by login", func(t *testing.T) {
		tk, user := task(t)
		workertest.Write(t, filepath.Join(user, ".codex", "auth.json"), "{}")
		tk.Lookup = workertest.Lookup("OPENAI_API_KEY", "k")
		if c := start(t, tk); slices.Contains(c.Env, "CODEX_API_KEY=k") {
			t.Error("the key takes the place of the login")
		}
		def := config(t, tk)["model_providers"].(map[string]any)[providerID].(map[string]any)
		if def["requires_openai_auth"] != true || def["request_max_retries"] != int64(0) {
			t.Errorf("provider %v", def)
		}
	})
	t.Run("broken configuration", func(t *testing.T) {
		tk, user := task(t)
		workertest.Write(t, filepath.Join(user, ".codex", "config.toml"), "model = ")
		var f *worker.Failure
		if _, err := (Adapter{}).Start(tk); !errors.As(err, &f) || f.Class != job.Config {
			t.Errorf("got %v", err)
		}
	})
}

// TestResume checks that a thread that is recorded is resumed or copied, that rules which an
// earlier attempt has left do not count, and that a thread that is lost starts anew.
func TestResume(t *testing.T) {
	const thread = "01a1fcce-6b90-7022-94af-83e4d513c5ef"
	tk, _ := task(t)
	tk.Session = thread
	s, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	begins(t, s, "thread/start")
	events := workertest.Play(s).Event([]byte(helloLine))
	if len(events) != 0 {
		t.Errorf("events %+v", events)
	}
	if s, err = (Adapter{}).Start(tk); err != nil {
		t.Fatal(err)
	}
	if events := workertest.Play(s).Event([]byte(`{"method":"x"}`)); len(events) != 1 || events[0].Kind != job.EventWarning {
		t.Errorf("events %+v", events)
	}

	recorded, rules := filepath.Join(tk.Home, "codex", "sessions", "2026", "11", "21"), filepath.Join(tk.Home, "codex", "rules")
	for _, dir := range []string{recorded, rules} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	record := filepath.Join(recorded, "rollout-2026-11-21T06-32-40-"+thread+".jsonl")
	workertest.Write(t, record, "{}")
	workertest.Write(t, filepath.Join(rules, "default.rules"), `prefix_rule(pattern=["rm"], decision="allow")`)
	for method, fork := range map[string]bool{"thread/resume": false, "thread/fork": true} {
		tk.Fork = fork
		if s, err = (Adapter{}).Start(tk); err != nil {
			t.Fatal(err)
		}
		if p := begins(t, s, method); p["threadId"] != thread || p["excludeTurns"] != true || p["cwd"] != tk.Dir || p["sandbox"] != "read-only" || p["approvalPolicy"] != "never" {
			t.Errorf("%s with %v", method, p)
		}
	}
	if _, err := os.Stat(record); err != nil {
		t.Errorf("the earlier attempt's content: %v", err)
	}
	if _, err := os.Stat(rules); err == nil {
		t.Error("the earlier attempt's rules are there")
	}
}
