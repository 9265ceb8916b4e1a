package opencode

import (
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

const gatewayURL, gatewayKey = "http://127.0.0.1:40123", "the-runs-key"

// TestConfined checks what a run is given that a sandbox holds and whose models come from
// a gateway.
func TestConfined(t *testing.T) {
	for _, c := range []struct {
		model, users string
		api          worker.ModelAPI
		npm          string
		asked        string // provider/model
		bounds       map[string]any
	}{
		{"anthropic/claude-x", "", worker.AnthropicMessages, "@ai-sdk/anthropic", "anthropic/claude-x", map[string]any{}},
		{"openai/gpt-x", "", worker.OpenAIResponses, "@ai-sdk/openai", "openai/gpt-x", map[string]any{}},
		{"gate/vendor/m", "", worker.OpenAIChat, "@ai-sdk/openai-compatible", "gate/vendor/m", map[string]any{"limit": map[string]any{"context": 1000.0}}},
		{"", "openai/gpt-y", worker.OpenAIResponses, "@ai-sdk/openai", "openai/gpt-y", map[string]any{}},
		{"", "", worker.OpenAIChat, "", "", nil}, // no model
		{"bare", "", worker.OpenAIChat, "@ai-sdk/openai-compatible", "agentsched/bare", map[string]any{}},
		{"agentsched/m", "", worker.OpenAIChat, "@ai-sdk/openai-compatible", "agentsched/m", map[string]any{}},
		{"amazon-bedrock/m", "", worker.OpenAIChat, "@ai-sdk/openai-compatible", "agentsched/amazon-bedrock/m", map[string]any{}},
	} {
		t.Run(c.model+c.users, func(t *testing.T) {
			tk, user := task(t)
			tk.Model = c.model
			for name, content := range map[string]string{
				".local/share/opencode/auth.json": `{"openai":{"type":"api","key":"sk-the-real-key"}}`,
				".config/opencode/AGENTS.md":      "mine",
				".config/git/config":              "[user]\n",
				".config/opencode/opencode.json": `{"model":"` + c.users + `","provider":{"gate":{"npm":"x","options":{"apiKey":"sk-the-real-key"},
					"models":{"vendor/m":{"limit":{"context":1000},"headers":{"key":"sk-the-real-key"}}}}}}`,
			} {
				workertest.Write(t, filepath.Join(user, name), content)
			}
			e := worker.ModelEndpoint{URL: gatewayURL, Key: gatewayKey, API: c.api}
			if c.asked == "" {
				workertest.Confine(t, tk, e)
				var f *worker.Failure
				if _, err := (Adapter{}).Start(tk); !errors.As(err, &f) || f.Class != job.Config {
					t.Errorf("no model: %v", err)
				}
				return
			}
			cmd := workertest.CheckConfined(t, Adapter{}, tk, e)
			if c.api == worker.AnthropicMessages {
				shown := cmd
				shown.Args = slices.Clone(cmd.Args)
				shown.Args[1] = filepath.Base(cmd.Args[1])
				workertest.GoldenCommand(t, "testdata/confined.command", *update, tk, shown)
			}
			for _, want := range []string{worker.ModelKeyVariable + "=" + gatewayKey, "XDG_CONFIG_HOME=" + filepath.Join(tk.Home, "config")} {
				if !slices.Contains(cmd.Env, want) {
					t.Errorf("no %s in %q", want, cmd.Env)
				}
			}
			if len(cmd.Read)+len(cmd.Write) > 0 || !slices.Equal(cmd.Programs, []string{cmd.Args[1]}) {
				t.Errorf("the run sees %q, %q and starts %q", cmd.Read, cmd.Write, cmd.Programs)
			}
			s, err := Adapter{}.Start(tk)
			if err != nil {
				t.Fatal(err)
			}
			vendor, model, _ := strings.Cut(c.asked, "/")
			if said := begin(s); !strings.Contains(said, `"model":{"providerID":"`+vendor+`","modelID":"`+model+`"}`) {
				t.Errorf("asked for %s: %s", c.asked, said)
			}
			got := config(t, tk)
			provider := got["enabled_providers"].([]any)[0].(string)
			all := got["provider"].(map[string]any)
			def := all[provider].(map[string]any)
			options := def["options"].(map[string]any)
			if len(all) != 1 || def["npm"] != c.npm || options["baseURL"] != gatewayURL+"/v1" || options["apiKey"] != "{env:"+worker.ModelKeyVariable+"}" {
				t.Errorf("providers %v", all)
			}
			if models := def["models"].(map[string]any); !reflect.DeepEqual(models, map[string]any{c.asked[len(provider)+1:]: c.bounds}) {
				t.Errorf("models %v", models)
			}
			if data := workertest.Read(t, filepath.Join(tk.Home, "config/opencode/AGENTS.md")); string(data) != "mine" {
				t.Errorf("the user's own instructions: %q", data)
			}
			if _, err := os.Lstat(filepath.Join(tk.Home, "config/git")); err == nil {
				t.Error("the user's other configuration is in reach")
			}
		})
	}
}

// TestConfinedWithLogin checks what the sandbox must let a run that sees the login.
func TestConfinedWithLogin(t *testing.T) {
	tk, user := task(t)
	login := filepath.Join(user, ".local/share/opencode/auth.json")
	workertest.Write(t, login, "{}")
	workertest.Confine(t, tk, worker.ModelEndpoint{})
	tk.Models, tk.Settings.BaseURL, tk.Settings.KeyEnv = nil, "", ""
	c := start(t, tk)
	if to, err := os.Readlink(filepath.Join(tk.Home, "data/opencode/auth.json")); !slices.Equal(c.Write, []string{login}) || to != login {
		t.Errorf("the sandbox lets it write %q, and the login is a link to %q, %v", c.Write, to, err)
	}
}

// TestUpstream checks whom a gateway has to ask, with which credential.
func TestUpstream(t *testing.T) {
	env := func(pairs ...string) map[string]string { return map[string]string{pairs[0]: pairs[1]} }
	for _, c := range []struct {
		name     string
		settings job.WorkerSettings
		env      map[string]string
		config   string
		auth     string
		want     worker.Upstream
		unserved bool
		fails    job.ErrorClass
	}{
		{name: "settings", settings: job.WorkerSettings{BaseURL: "http://gate/v1", KeyEnv: "K", Model: "agentsched/m"},
			want: worker.Upstream{API: worker.OpenAIChat, BaseURL: "http://gate/v1", KeyEnv: "K", Model: "m"}},
		{name: "anthropic", settings: job.WorkerSettings{Model: "anthropic/claude-x"}, env: env("ANTHROPIC_API_KEY", "k"),
			want: worker.Upstream{API: worker.AnthropicMessages, BaseURL: "https://api.anthropic.com", KeyEnv: "ANTHROPIC_API_KEY", Model: "claude-x"}},
		{name: "the user's model", config: `{"model":"openai/gpt-x"}`, env: env("OPENAI_API_KEY", "k"),
			want: worker.Upstream{API: worker.OpenAIResponses, BaseURL: "https://api.openai.com/v1", KeyEnv: "OPENAI_API_KEY", Model: "gpt-x"}},
		{name: "stored key", settings: job.WorkerSettings{Model: "groq/m"}, auth: `{"groq":{"type":"api","key":"sk"}}`,
			want: worker.Upstream{API: worker.OpenAIChat, BaseURL: "https://api.groq.com/openai/v1", Key: "sk", Model: "m"}},
		{name: "subscription", settings: job.WorkerSettings{Model: "anthropic/m"}, auth: `{"anthropic":{"type":"oauth"}}`, unserved: true},
		{name: "no key", settings: job.WorkerSettings{Model: "openai/m"}, fails: job.Auth},
		{name: "no model", unserved: true},
		{name: "a cloud", settings: job.WorkerSettings{Model: "amazon-bedrock/m"}, unserved: true},
		{name: "google", settings: job.WorkerSettings{Model: "google/m"}, env: env("GEMINI_API_KEY", "k"), unserved: true},
		{name: "own provider", settings: job.WorkerSettings{Model: "gate/vendor/m"}, env: env("HOST", "gate.example"),
			config: `{"provider":{"gate":{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"http://{env:HOST}/v1","apiKey":"{env:K}","headers":{"X":"{env:HOST}"}}}}}`,
			want:   worker.Upstream{API: worker.OpenAIChat, BaseURL: "http://gate.example/v1", KeyEnv: "K", Model: "vendor/m", Headers: map[string]string{"X": "gate.example"}}},
		{name: "own provider without a key", settings: job.WorkerSettings{Model: "here/m"}, config: `{"provider":{"here":{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"http://localhost:1/v1"}}}}`,
			want: worker.Upstream{API: worker.OpenAIChat, BaseURL: "http://localhost:1/v1", Model: "m"}},
		{name: "own provider with the usual key", settings: job.WorkerSettings{Model: "my-host/m"}, env: env("MY_HOST_API_KEY", "k"),
			config: `{"provider":{"my-host":{"npm":"@ai-sdk/anthropic","options":{"baseURL":"http://p/v1/"}}}}`,
			want:   worker.Upstream{API: worker.AnthropicMessages, BaseURL: "http://p", KeyEnv: "MY_HOST_API_KEY", Model: "m"}},
		{name: "key in the file", settings: job.WorkerSettings{Model: "openai/m"}, config: `{"provider":{"openai":{"options":{"apiKey":"sk"}}}}`,
			want: worker.Upstream{API: worker.OpenAIResponses, BaseURL: "https://api.openai.com/v1", Key: "sk", Model: "m"}},
		{name: "key of a file", settings: job.WorkerSettings{Model: "openai/m"}, config: `{"provider":{"openai":{"options":{"apiKey":"{file:~/key}"}}}}`, unserved: true},
		{name: "another client", settings: job.WorkerSettings{Model: "x/m"}, config: `{"provider":{"x":{"npm":"@ai-sdk/cohere","options":{"baseURL":"http://p"}}}}`, unserved: true},
		{name: "no address", settings: job.WorkerSettings{Model: "x/m"}, config: `{"provider":{"x":{"npm":"@ai-sdk/openai"}}}`, unserved: true},
		{name: "broken configuration", config: "{", fails: job.Config},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, home := task(t)
			for name, content := range map[string]string{".config/opencode/opencode.json": c.config, ".local/share/opencode/auth.json": c.auth} {
				if content != "" {
					workertest.Write(t, filepath.Join(home, name), content)
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
			case c.fails != "":
				if !errors.As(err, &failed) || failed.Class != c.fails || failed.Hint == "" {
					t.Fatalf("got %+v, %v", got, err)
				}
			case err != nil:
				t.Fatal(err)
			case !reflect.DeepEqual(got, c.want):
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
