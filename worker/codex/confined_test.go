package codex

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

var gateway = worker.ModelEndpoint{URL: "http://127.0.0.1:40123", Key: "the-runs-key", API: worker.OpenAIResponses}

// TestConfined checks what a run is given that a sandbox holds and whose models come from
// a gateway.
func TestConfined(t *testing.T) {
	for _, login := range []string{"", "codex"} {
		tk, user := task(t)
		workertest.Write(t, filepath.Join(user, ".codex", "auth.json"), `{"OPENAI_API_KEY":"sk-the-real-key"}`)
		workertest.Write(t, filepath.Join(user, ".codex", "AGENTS.md"), "mine")
		workertest.Write(t, filepath.Join(user, ".codex", "config.toml"), `model = "gpt-mine"
model_provider = "mine"
model_reasoning_effort = "high"
chatgpt_base_url = "https://chat.example"
[model_providers.mine]
base_url = "https://models.example"
experimental_bearer_token = "sk-the-real-key"
`)
		if err := os.Symlink(filepath.Join(user, ".codex", "auth.json"), filepath.Join(tk.Home, "codex-auth")); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(tk.Home, "codex"), 0o700); err != nil {
			t.Fatal(err)
		}
		// An earlier attempt, which was not confined, has left its link.
		if err := os.Rename(filepath.Join(tk.Home, "codex-auth"), filepath.Join(tk.Home, "codex", "auth.json")); err != nil {
			t.Fatal(err)
		}
		tk.Capabilities = []job.Capability{job.CanRead}
		e := gateway
		e.Login = login
		c := workertest.CheckConfined(t, Adapter{}, tk, e)
		workertest.GoldenCommand(t, "testdata/confined.command", *update, tk, c)

		if g := grantOf(tk); g.sandbox != "danger-full-access" {
			t.Errorf("codex's own sandbox is %q", g.sandbox)
		}
		for _, not := range []string{"sandbox_workspace_write.network_access=false", "sandbox_workspace_write.network_access=true"} {
			if slices.Contains(c.Args, not) {
				t.Errorf("%s in %q", not, c.Args)
			}
		}
		if tmp := "TMPDIR=" + tk.Getenv("TMPDIR"); !slices.Contains(c.Env, tmp) || slices.ContainsFunc(c.Env, func(kv string) bool { return kv[:min(8, len(kv))] == "GOCACHE=" }) {
			t.Errorf("want %s and no GOCACHE in %q", tmp, c.Env)
		}
		if len(c.Read)+len(c.Write) > 0 {
			t.Errorf("the run sees %q, %q", c.Read, c.Write)
		}
		got := config(t, tk)
		def := got["model_providers"].(map[string]any)[providerID].(map[string]any)
		if def["base_url"] != gateway.URL+"/v1" || def["env_key"] != worker.ModelKeyVariable || def["requires_openai_auth"] != nil || def["request_max_retries"] != int64(0) {
			t.Errorf("provider %v", def)
		}
		if got["model"] != "gpt-mine" || got["model_reasoning_effort"] != "high" || got["chatgpt_base_url"] != nil || got["sandbox_workspace_write"] != nil {
			t.Errorf("configuration %v", got)
		}
		if !slices.Contains(c.Env, worker.ModelKeyVariable+"="+gateway.Key) {
			t.Errorf("no key in %q", c.Env)
		}
		if hidden := got["shell_environment_policy"].(map[string]any)["exclude"].([]any); !slices.Contains(hidden, any(worker.ModelKeyVariable)) {
			t.Errorf("commands see the key: %v", hidden)
		}
		if data := workertest.Read(t, filepath.Join(tk.Home, "codex", "AGENTS.md")); string(data) != "mine" {
			t.Errorf("the user's own instructions: %q", data)
		}
	}
}

// TestConfinedWithLogin checks what the sandbox must let a run that sees the login.
func TestConfinedWithLogin(t *testing.T) {
	tk, user := task(t)
	login := filepath.Join(user, ".codex", "auth.json")
	workertest.Write(t, login, "{}")
	workertest.Confine(t, tk, gateway)
	tk.Models, tk.Settings.BaseURL, tk.Settings.KeyEnv = nil, "", ""
	c := start(t, tk)
	if !slices.Equal(c.Write, []string{login}) {
		t.Errorf("the sandbox lets it write %q", c.Write)
	}
	if to, err := os.Readlink(filepath.Join(tk.Home, "codex", "auth.json")); err != nil || to != login {
		t.Errorf("the login is a link to %q, %v", to, err)
	}
	if err := os.Remove(login); err != nil {
		t.Fatal(err)
	}
	if c := start(t, tk); len(c.Write) > 0 {
		t.Errorf("there is no login, and the sandbox lets it write %q", c.Write)
	}
}

// TestCopiedInstructions has things in the place of the user's AGENTS.md that must not
// be copied.
func TestCopiedInstructions(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"a giant":  func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) },
	} {
		tk, user := task(t)
		if err := put(filepath.Join(user, ".codex", "AGENTS.md")); err != nil {
			t.Fatal(err)
		}
		workertest.Confine(t, tk, gateway)
		if _, err := (Adapter{}).Start(tk); err == nil {
			t.Errorf("%s was copied", name)
		}
	}
}

// TestUpstream checks whom a gateway has to ask, with which credential.
func TestUpstream(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings job.WorkerSettings
		env      map[string]string
		config   string
		auth     string
		want     worker.Upstream // LoginFile by its name in .codex
		unserved bool
		fails    job.ErrorClass
	}{
		{name: "nothing", fails: job.Auth},
		{name: "settings", settings: job.WorkerSettings{BaseURL: "http://gate/v1", KeyEnv: "GATE_KEY", Model: "m"}, config: `model_provider = "mine"`,
			want: worker.Upstream{BaseURL: "http://gate/v1", KeyEnv: "GATE_KEY", Model: "m"}},
		{name: "key", env: map[string]string{"OPENAI_API_KEY": "k"}, want: worker.Upstream{BaseURL: openAI, KeyEnv: "OPENAI_API_KEY"}},
		{name: "codex's own key beats a login", env: map[string]string{"CODEX_API_KEY": "k"}, auth: `{"tokens":{"access_token":"t"}}`,
			want: worker.Upstream{BaseURL: openAI, KeyEnv: "CODEX_API_KEY"}},
		{name: "login beats a key", env: map[string]string{"OPENAI_API_KEY": "k"}, auth: `{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"access_token":"t"}}`,
			want: worker.Upstream{BaseURL: chatGPT, Login: "codex", LoginFile: "auth.json"}},
		{name: "login by key", auth: `{"OPENAI_API_KEY":"sk","tokens":null}`, want: worker.Upstream{BaseURL: openAI, Key: "sk"}},
		{name: "login by key beside tokens", auth: `{"OPENAI_API_KEY":"sk","tokens":{"access_token":"t"}}`, want: worker.Upstream{BaseURL: openAI, Key: "sk"}},
		{name: "another address of openai", config: `openai_base_url = "http://o/v1"`, env: map[string]string{"OPENAI_API_KEY": "k"},
			want: worker.Upstream{BaseURL: "http://o/v1", KeyEnv: "OPENAI_API_KEY"}},
		{name: "keyring", config: `cli_auth_credentials_store = "keyring"`, unserved: true},
		{name: "another chatgpt", config: `chatgpt_base_url = "http://o"`, auth: `{"tokens":{"access_token":"t"}}`, unserved: true},
		{name: "own machine", config: "model = \"m\"\nmodel_provider = \"ollama\"", want: worker.Upstream{BaseURL: local["ollama"], Model: "m"}},
		{name: "a cloud", config: `model_provider = "amazon-bedrock"`, unserved: true},
		{name: "own provider", config: `
			model_provider = "mine"
			[model_providers.mine]
			base_url = "http://p/v1"
			env_key = "MINE_KEY"
			http_headers = {"X-Team" = "a"}
			env_http_headers = {"X-User" = "WHO", "X-None" = "NONE"}`, env: map[string]string{"WHO": "b"},
			want: worker.Upstream{BaseURL: "http://p/v1", KeyEnv: "MINE_KEY", Headers: map[string]string{"X-Team": "a", "X-User": "b"}}},
		{name: "own provider of chat", config: "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"http://p/v1\"\nwire_api = \"chat\"\nexperimental_bearer_token = \"sk\"",
			want: worker.Upstream{API: worker.OpenAIChat, BaseURL: "http://p/v1", Key: "sk"}},
		{name: "azure", config: "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"http://p/v1\"\nquery_params = {\"api-version\" = \"1\"}", unserved: true},
		{name: "openai's login elsewhere", config: "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"http://p/v1\"\nrequires_openai_auth = true", unserved: true},
		{name: "no address", config: "model_provider = \"mine\"\n[model_providers.mine]\nname = \"x\"", unserved: true},
		{name: "broken configuration", config: "model = ", fails: job.Config},
		{name: "broken login", auth: "{", fails: job.Config},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			if err := os.Mkdir(filepath.Join(home, ".codex"), 0o700); err != nil {
				t.Fatal(err)
			}
			for name, content := range map[string]string{"config.toml": c.config, "auth.json": c.auth} {
				if content != "" {
					workertest.Write(t, filepath.Join(home, ".codex", name), content)
				}
			}
			got, err := Adapter{}.Upstream(c.settings, func(name string) string {
				if name == "HOME" {
					return home
				}
				return c.env[name]
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
			if c.want.API == "" {
				c.want.API = worker.OpenAIResponses
			}
			if c.want.LoginFile != "" {
				c.want.LoginFile = filepath.Join(home, ".codex", c.want.LoginFile)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
