package claude

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

var gateway = worker.ModelEndpoint{URL: "http://127.0.0.1:40123", Key: "the-runs-key", API: worker.AnthropicMessages}

// TestConfined checks what a run is given that a sandbox holds and whose models come from
// a gateway.
func TestConfined(t *testing.T) {
	for login, key := range map[string]string{"": "ANTHROPIC_API_KEY", "claude": "ANTHROPIC_AUTH_TOKEN"} {
		tk, user := task(t)
		for name, content := range map[string]string{
			".claude/.credentials.json": `{"claudeAiOauth":{"accessToken":"sk-the-real-key"}}`,
			".claude/CLAUDE.md":         "mine",
			".claude/settings.json": `{"model":"opus","apiKeyHelper":"echo sk-the-real-key","env":{"ANTHROPIC_API_KEY":"sk-the-real-key",
				"ANTHROPIC_DEFAULT_HAIKU_MODEL":"small","CLAUDE_CODE_USE_BEDROCK":"1"}}`,
			".claude.json": `{"primaryApiKey":"sk-the-real-key","oauthAccount":{"emailAddress":"a@b.c"}}`,
		} {
			workertest.Write(t, filepath.Join(user, name), content)
		}
		tk.Capabilities = []job.Capability{job.CanRead, job.CanEdit}
		tk.Environ = append(tk.Environ, "CLAUDE_CODE_USE_BEDROCK=1", "ANTHROPIC_BASE_URL=http://elsewhere", "AWS_PROFILE=the-jobs-own")
		e := gateway
		e.Login = login
		c := workertest.CheckConfined(t, Adapter{}, tk, e)
		workertest.GoldenCommand(t, "testdata/confined-"+cmp.Or(login, "key")+".command", *update, tk, c)

		for _, want := range []string{"ANTHROPIC_BASE_URL=" + gateway.URL, key + "=" + gateway.Key, "CLAUDE_CODE_TMPDIR=" + tk.Getenv("TMPDIR"), "AWS_PROFILE=the-jobs-own"} {
			if !slices.Contains(c.Env, want) {
				t.Errorf("no %s in %q", want, c.Env)
			}
		}
		for _, kv := range c.Env {
			name, _, _ := strings.Cut(kv, "=")
			if slices.Contains([]string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"}, name) && name != key || name == "CLAUDE_CODE_USE_BEDROCK" || name == "CLAUDE_SECURESTORAGE_CONFIG_DIR" {
				t.Errorf("the program gets %s", kv)
			}
		}
		if len(c.Read)+len(c.Write) > 0 {
			t.Errorf("the run sees %q, %q", c.Read, c.Write)
		}
		if !slices.Contains(c.Args, "--tools=Read,Glob,Grep,Edit,Write,NotebookEdit") {
			t.Errorf("tools in %q", c.Args)
		}
		dir := filepath.Join(tk.Home, "claude")
		want := map[string]any{"includeCoAuthoredBy": false, "model": "opus", "env": map[string]any{"ANTHROPIC_DEFAULT_HAIKU_MODEL": "small"}}
		if got := workertest.ReadJSON(t, filepath.Join(dir, "settings.json")); !reflect.DeepEqual(got, want) {
			t.Errorf("settings %v, want %v", got, want)
		}
		if _, err := os.Lstat(filepath.Join(dir, ".claude.json")); err == nil {
			t.Error("the account was taken over")
		}
		if data := workertest.Read(t, filepath.Join(dir, "CLAUDE.md")); string(data) != "mine" {
			t.Errorf("the user's own instructions: %q", data)
		}
	}
}

// TestConfinedWithLogin checks what the sandbox must let a run that sees the login.
func TestConfinedWithLogin(t *testing.T) {
	tk, user := task(t)
	login := filepath.Join(user, ".claude", ".credentials.json")
	workertest.Write(t, login, "{}")
	workertest.Confine(t, tk, gateway)
	tk.Models, tk.Settings.BaseURL, tk.Settings.KeyEnv = nil, "", ""
	c := start(t, tk)
	if !slices.Equal(c.Write, []string{login}) || !slices.Contains(c.Env, "CLAUDE_SECURESTORAGE_CONFIG_DIR="+filepath.Dir(login)) {
		t.Errorf("the sandbox lets it write %q, and it looks in %q", c.Write, c.Env)
	}
}

// TestUpstream checks whom a gateway has to ask, with which credential.
func TestUpstream(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings job.WorkerSettings
		env      map[string]string
		files    map[string]string // below the home
		want     worker.Upstream   // LoginFile relative to the home
		unserved bool
		fails    job.ErrorClass
	}{
		{name: "settings", settings: job.WorkerSettings{BaseURL: "http://gate", KeyEnv: "GATE_KEY"}, env: map[string]string{"CLAUDE_CODE_USE_BEDROCK": "1"},
			want: worker.Upstream{BaseURL: "http://gate", KeyEnv: "GATE_KEY"}},
		{name: "key", env: map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "m"}, want: worker.Upstream{BaseURL: anthropic, KeyEnv: "ANTHROPIC_API_KEY", Model: "m"}},
		{name: "token beats key", env: map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_BASE_URL": "http://o", "ANTHROPIC_CUSTOM_HEADERS": "X-A: 1\nbad\nX-B:2"},
			want: worker.Upstream{BaseURL: "http://o", KeyEnv: "ANTHROPIC_AUTH_TOKEN", Bearer: true, Headers: map[string]string{"X-A": "1", "X-B": "2"}}},
		{name: "key in the settings", files: map[string]string{".claude/settings.json": `{"model":"opus","env":{"ANTHROPIC_API_KEY":"sk","ANTHROPIC_BASE_URL":"http://o"}}`},
			env: map[string]string{"ANTHROPIC_BASE_URL": "http://p"}, want: worker.Upstream{BaseURL: "http://o", Key: "sk", Model: "opus"}},
		{name: "helper", files: map[string]string{".claude/settings.json": `{"apiKeyHelper":"pass show key"}`, ".claude/.credentials.json": `{"claudeAiOauth":{}}`},
			want: worker.Upstream{BaseURL: anthropic, KeyCommand: "pass show key"}},
		{name: "long-lived token", env: map[string]string{"CLAUDE_CODE_OAUTH_TOKEN": "t"}, want: worker.Upstream{BaseURL: anthropic, KeyEnv: "CLAUDE_CODE_OAUTH_TOKEN", Login: "claude", Bearer: true}},
		{name: "login", files: map[string]string{".claude/.credentials.json": `{"claudeAiOauth":{}}`},
			want: worker.Upstream{BaseURL: anthropic, LoginFile: ".claude/.credentials.json", Login: "claude", Bearer: true}},
		{name: "login elsewhere", env: map[string]string{"CLAUDE_CONFIG_DIR": "HOME/conf"}, files: map[string]string{"conf/.credentials.json": `{"claudeAiOauth":{}}`},
			want: worker.Upstream{BaseURL: anthropic, LoginFile: "conf/.credentials.json", Login: "claude", Bearer: true}},
		{name: "account's key", files: map[string]string{".claude.json": `{"primaryApiKey":"sk"}`}, want: worker.Upstream{BaseURL: anthropic, Key: "sk"}},
		{name: "bedrock", env: map[string]string{"CLAUDE_CODE_USE_BEDROCK": "1"}, unserved: true},
		{name: "no bedrock", env: map[string]string{"CLAUDE_CODE_USE_BEDROCK": "0", "ANTHROPIC_API_KEY": "k"}, want: worker.Upstream{BaseURL: anthropic, KeyEnv: "ANTHROPIC_API_KEY"}},
		{name: "vertex in the settings", files: map[string]string{".claude/settings.json": `{"env":{"CLAUDE_CODE_USE_VERTEX":"true"}}`}, unserved: true},
		{name: "broken settings", files: map[string]string{".claude/settings.json": `{`}, fails: job.Config},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			for name, content := range c.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				workertest.Write(t, filepath.Join(home, name), content)
			}
			got, err := Adapter{}.Upstream(c.settings, func(name string) string {
				if name == "HOME" {
					return home
				}
				return strings.Replace(c.env[name], "HOME", home, 1)
			})
			var unserved *worker.UnservedError
			var failed *worker.Failure
			switch {
			case c.unserved:
				if !errors.As(err, &unserved) || unserved.Why == "" {
					t.Fatalf("got %+v, %v", got, err)
				}
				return
			case c.fails != "":
				if !errors.As(err, &failed) || failed.Class != c.fails || failed.Hint == "" {
					t.Fatalf("got %+v, %v", got, err)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			c.want.API = worker.AnthropicMessages
			if c.want.LoginFile != "" {
				c.want.LoginFile = filepath.Join(home, c.want.LoginFile)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestNoCredential has neither a key nor a login; on a system with a keychain the login
// may be there.
func TestNoCredential(t *testing.T) {
	_, err := Adapter{}.Upstream(job.WorkerSettings{}, func(name string) string {
		return map[string]string{"HOME": t.TempDir()}[name]
	})
	var failed *worker.Failure
	var unserved *worker.UnservedError
	if !errors.As(err, &unserved) && (!errors.As(err, &failed) || failed.Class != job.Auth || failed.Hint != loginHint) {
		t.Errorf("got %v", err)
	}
}
