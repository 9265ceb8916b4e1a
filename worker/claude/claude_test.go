package claude

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

func task(t *testing.T) (task *worker.Task, userHome string) {
	return workertest.UserTask(t, program.Name, "2.1.197 (Claude Code)", ".claude")
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
	workertest.CheckProgram(t, Adapter{}, tk, "2.1.197", "npm install -g @anthropic-ai/claude-code")
}

// TestGrants holds what each set of capabilities comes to.
func TestGrants(t *testing.T) {
	const read, edit, commands, tests, network = job.CanRead, job.CanEdit, job.CanRunCommands, job.CanRunTests, job.CanUseNetwork
	const all = "Read,Glob,Grep,Edit,Write,NotebookEdit,Bash,WebFetch,WebSearch,AskUserQuestion"
	for _, c := range []struct {
		name     string
		caps     []job.Capability
		patterns []string
		tools    string
		allow    []string // rules that must stand there
		not      []string // rules that must not
		asked    bool
		ask      string // all of these rules
	}{
		{name: "none"},
		{name: "read", caps: []job.Capability{read}, tools: "Read,Glob,Grep", allow: []string{"Read(./**)"}},
		{name: "edit", caps: []job.Capability{read, edit}, tools: "Read,Glob,Grep,Edit,Write,NotebookEdit", allow: []string{"Read(./**)", "Edit(./**)"}},
		{name: "any command", caps: []job.Capability{read, edit, commands}, tools: "Read,Glob,Grep,Edit,Write,NotebookEdit,Bash", allow: []string{"Bash"}},
		{name: "some commands", caps: []job.Capability{commands}, patterns: []string{"go test *", "make"}, tools: "Bash",
			allow: []string{"Bash(go test)", "Bash(go test *)", "Bash(make)"}, not: []string{"Bash", "Bash(go vet *)"}},
		{name: "tests only", caps: []job.Capability{job.CanRunTests}, tools: "Bash", allow: []string{"Bash(go test *)", "Bash(npm test)"}, not: []string{"Bash"}},
		{name: "some commands and tests", caps: []job.Capability{commands, tests}, patterns: []string{"ls *"}, tools: "Bash",
			allow: []string{"Bash(ls *)", "Bash(go vet *)"}, not: []string{"Bash"}},
		{name: "network", caps: []job.Capability{network}, tools: "WebFetch,WebSearch", allow: []string{"WebFetch", "WebSearch"}},
		{name: "asked, none", asked: true, tools: all, ask: "Read Glob Grep Bash"},
		{name: "asked, read", asked: true, caps: []job.Capability{read}, tools: all, allow: []string{"Read(./**)"}, ask: "Bash"},
		{name: "asked, some commands", asked: true, caps: []job.Capability{read, commands}, patterns: []string{"make"}, tools: all, allow: []string{"Read(./**)", "Bash(make)"}, not: []string{"Bash"}},
		{name: "asked, all", asked: true, caps: []job.Capability{read, edit, commands, network}, tools: all, allow: []string{"Read(./**)", "Edit(./**)", "Bash", "WebFetch"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tk, _ := task(t)
			tk.Capabilities, tk.AllowCommands, tk.Asked = c.caps, c.patterns, c.asked
			args := start(t, tk).Args
			for _, want := range []string{"--tools=" + c.tools, "--permission-mode=default", "--permission-prompt-tool=stdio", "--input-format=stream-json", "--replay-user-messages", "--setting-sources=user", "--strict-mcp-config"} {
				if !slices.Contains(args, want) {
					t.Errorf("no %s in %q", want, args)
				}
			}
			for _, a := range args {
				if strings.Contains(a, "dangerously") {
					t.Errorf("%s", a)
				}
			}
			if settings := "--settings=" + filepath.Join(tk.Scratch, "permissions.json"); slices.Contains(args, settings) != (len(c.allow)+len(c.ask) > 0) {
				t.Errorf("settings in %q", args)
			}
			rules := workertest.ReadJSON(t, filepath.Join(tk.Scratch, "permissions.json"))["permissions"].(map[string]any)
			allow := rules["allow"].([]any)
			if ask, _ := rules["ask"].([]any); c.ask != strings.Trim(fmt.Sprint(ask), "[]") {
				t.Errorf("rules to ask: %v, want %s", ask, c.ask)
			}
			for _, rule := range c.allow {
				if !slices.Contains(allow, any(rule)) {
					t.Errorf("%s is not in %v", rule, allow)
				}
			}
			for _, rule := range c.not {
				if slices.Contains(allow, any(rule)) {
					t.Errorf("%s is in %v", rule, allow)
				}
			}
			if len(c.allow) == 0 && len(allow) > 0 {
				t.Errorf("allowed %v", allow)
			}
		})
	}
}

// TestCommandLine holds the parts that do not depend on capabilities.
func TestCommandLine(t *testing.T) {
	tk, _ := task(t)
	tk.Model, tk.Output, tk.SystemPrompt, tk.Limits.MaxCostUSD = "opus", []byte(`{"type":"object"}`), "-be brief", 0.5
	tk.Settings.Command = append(tk.Settings.Command, "--leading")
	c := start(t, tk)
	system := filepath.Join(tk.Scratch, "system-prompt.txt")
	for _, want := range []string{"--leading", "--print", "--model=opus", `--json-schema={"type":"object"}`, "--max-budget-usd=0.5",
		"--append-system-prompt-file=" + system, "--add-dir=" + tk.Dir} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("no %s in %q", want, c.Args)
		}
	}
	if !strings.HasSuffix(string(c.Stdin), `{"message":{"content":[{"text":"-do it","type":"text"}],"role":"user"},"type":"user"}`+"\n") || !c.KeepStdin || c.Dir != tk.Dir || string(workertest.Read(t, system)) != "-be brief" {
		t.Errorf("stdin %q, dir %q", c.Stdin, c.Dir)
	}
	for _, want := range []string{"CLAUDE_CODE_MAX_RETRIES=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("no %s in %q", want, c.Env)
		}
	}
	tk.Instructions = "/compact this text"
	if c := start(t, tk); !strings.Contains(string(c.Stdin), `{"text":"Task:\n/compact this text",`) {
		t.Errorf("stdin %q", c.Stdin)
	}
	var f *worker.Failure
	tk.Instructions = strings.Repeat("x", maxPrompt+1)
	if _, err := (Adapter{}).Start(tk); !errors.As(err, &f) || f.Class != job.Config {
		t.Errorf("prompt that is too long: %v", err)
	}
}

// TestHome checks that the user's login is reused and that nothing of the
// user's that grants anything is.
func TestHome(t *testing.T) {
	tk, user := task(t)
	users := map[string]string{
		".claude/.credentials.json": `{"claudeAiOauth":{}}`,
		".claude/CLAUDE.md":         "mine",
		".claude/settings.json": `{"apiKeyHelper":"helper","permissions":{"allow":["Bash"]},"hooks":{"PreToolUse":[]},"enabledPlugins":{"x":true},
			"env":{"ANTHROPIC_BASE_URL":"http://127.0.0.1:1","PATH":"/evil"}}`,
		".claude.json": `{"oauthAccount":{"emailAddress":"a@b.c"},"mcpServers":{"evil":{}},"projects":{"/":{"hasTrustDialogAccepted":true}}}`,
	}
	for name, content := range users {
		workertest.Write(t, filepath.Join(user, name), content)
	}
	tk.Lookup = workertest.Lookup("ANTHROPIC_API_KEY", "sk")
	c := start(t, tk)

	dir := filepath.Join(tk.Home, "claude")
	for _, want := range []string{"CLAUDE_CONFIG_DIR=" + dir, "HOME=" + user, "ANTHROPIC_API_KEY=sk", "CLAUDE_SECURESTORAGE_CONFIG_DIR="} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("no %s in %q", want, c.Env)
		}
	}
	settings, account := workertest.ReadJSON(t, filepath.Join(dir, "settings.json")), workertest.ReadJSON(t, filepath.Join(dir, ".claude.json"))
	for _, key := range []string{"permissions", "hooks", "enabledPlugins"} {
		if _, ok := settings[key]; ok {
			t.Errorf("%s was taken over", key)
		}
	}
	if vars := settings["env"].(map[string]any); len(vars) != 1 || settings["apiKeyHelper"] != "helper" {
		t.Errorf("settings %v", settings)
	}
	if account["oauthAccount"] == nil || account["mcpServers"] != nil || account["projects"] != nil {
		t.Errorf("account %v", account)
	}
	if data := workertest.Read(t, filepath.Join(dir, "CLAUDE.md")); string(data) != "mine" {
		t.Errorf("the user's own instructions: %q", data)
	}
	if _, err := os.Lstat(filepath.Join(dir, ".credentials.json")); err == nil {
		t.Error("the login was copied")
	}
	for name, content := range users {
		if data := workertest.Read(t, filepath.Join(user, name)); string(data) != content {
			t.Errorf("the user's %s became %q", name, data)
		}
	}
}

// TestAnotherEndpoint checks that it sees its own key and nobody's login.
func TestAnotherEndpoint(t *testing.T) {
	tk, user := task(t)
	workertest.Write(t, filepath.Join(user, ".claude", "settings.json"), `{"apiKeyHelper":"helper"}`)
	workertest.Write(t, filepath.Join(user, ".claude.json"), `{"primaryApiKey":"sk"}`)
	tk.Settings.BaseURL, tk.Settings.KeyEnv = "http://127.0.0.1:1", "GATE_KEY"
	tk.Lookup = workertest.Lookup("GATE_KEY", "k")
	c := start(t, tk)
	if !slices.Contains(c.Env, "ANTHROPIC_BASE_URL=http://127.0.0.1:1") || !slices.Contains(c.Env, "ANTHROPIC_API_KEY=k") {
		t.Errorf("env %q", c.Env)
	}
	if slices.ContainsFunc(c.Env, func(kv string) bool { return strings.HasPrefix(kv, "CLAUDE_SECURESTORAGE") }) {
		t.Error("the user's login is in reach")
	}
	dir := filepath.Join(tk.Home, "claude")
	if settings := workertest.ReadJSON(t, filepath.Join(dir, "settings.json")); settings["apiKeyHelper"] != nil {
		t.Errorf("settings %v", settings)
	}
	if _, err := os.Stat(filepath.Join(dir, ".claude.json")); err == nil {
		t.Error("the account was taken over")
	}
}

// TestResume checks that a session that is recorded is resumed, and that one
// that is lost starts anew.
func TestResume(t *testing.T) {
	const id = "73c1c69b-9a79-4eae-bcd0-8a4baf7dbb34"
	tk, _ := task(t)
	tk.Session = id
	s, err := Adapter{}.Start(tk)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(s.Command().Args, "--resume="+id) {
		t.Error("a session is resumed that is not there")
	}
	if events := workertest.Play(s).Event([]byte(`{"type":"system","subtype":"other"}`)); len(events) != 1 || events[0].Kind != job.EventWarning {
		t.Errorf("events %+v", events)
	}
	recorded := filepath.Join(tk.Home, "claude", "projects", "-workspace")
	if err := os.MkdirAll(recorded, 0o700); err != nil {
		t.Fatal(err)
	}
	workertest.Write(t, filepath.Join(recorded, id+".jsonl"), "{}")
	if c := start(t, tk); !slices.Contains(c.Args, "--resume="+id) || slices.Contains(c.Args, "--fork-session") {
		t.Errorf("args %q", c.Args)
	}
	tk.Fork = true
	if c := start(t, tk); !slices.Contains(c.Args, "--resume="+id) || !slices.Contains(c.Args, "--fork-session") {
		t.Errorf("args of a fork %q", c.Args)
	}
	if data := workertest.Read(t, filepath.Join(recorded, id+".jsonl")); string(data) != "{}" {
		t.Errorf("the earlier attempt's content: %q", data)
	}
}

// TestBringSession: a session that comes from another host lies where the program looks for it here.
func TestBringSession(t *testing.T) {
	for dir, want := range map[string]string{ // as the program's own rule gives it
		"/var/lib/agentsched/work/a_b.c":  "-var-lib-agentsched-work-a-b-c",
		"/tmp/ü/𝄞x":                       "-tmp-----x",
		"/" + strings.Repeat("long/", 50): "-" + strings.Repeat("long-", 39) + "long-dlg7rj",
		"/" + strings.Repeat("weg/ä", 60): "-" + strings.Repeat("weg--", 39) + "weg--wqg7jj",
	} {
		if got := projectOf(dir); got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
	h := home{dir: t.TempDir()}
	dir := t.TempDir()
	old := filepath.Join(h.dir, "projects", "-of-another-host")
	if err := os.MkdirAll(filepath.Join(old, "s1"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"s1.jsonl", "s1/tool"} {
		if err := os.WriteFile(filepath.Join(old, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time there is nothing to do
		if err := h.bringSession("s1", dir); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"s1.jsonl", "s1/tool"} {
			if text, err := os.ReadFile(filepath.Join(h.dir, "projects", projectOf(dir), name)); err != nil || string(text) != name {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	}
	if err := h.bringSession("s2", dir); err != nil || !h.hasSession("s1") || h.hasSession("s2") {
		t.Errorf("another session: %v", err)
	}
}
