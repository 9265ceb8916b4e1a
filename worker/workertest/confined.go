package workertest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/worker"
)

// realKey is what every variable of a key holds for CheckConfined.
const realKey = "sk-the-real-key"

// keyVariables are the usual names of keys and tokens, and of what is as good.
var keyVariables = []string{
	"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_FOUNDRY_API_KEY",
	"AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
	"OPENAI_API_KEY", "CODEX_API_KEY", "OPENROUTER_API_KEY", "OPENCODE_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY",
	"GOOGLE_GENERATIVE_AI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY", "AZURE_API_KEY", "SETTINGS_KEY",
}

// Confine makes a task one that is confined and that reaches its models at e: its
// environment has the private home that it returns, and the user's is what Lookup knows,
// beside a real key in each variable that may hold one.
func Confine(t testing.TB, task *worker.Task, e worker.ModelEndpoint) (home string) {
	t.Helper()
	home = t.TempDir()
	users, tmp := task.Getenv("HOME"), filepath.Join(home, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	task.Environ = worker.SetEnv(worker.SetEnv(task.Environ, "HOME", home), "TMPDIR", tmp)
	task.Lookup = func(name string) (string, bool) {
		switch {
		case name == "HOME":
			return users, true
		case slices.Contains(keyVariables, name):
			return realKey, true
		}
		return "", false
	}
	task.Confined, task.Models = true, &e
	task.Settings.BaseURL, task.Settings.KeyEnv = "https://models.example/v1", "SETTINGS_KEY"
	return home
}

// CheckConfined starts a task that is confined and reaches its models through a
// gateway: no key of the user's may reach the program, and nothing that Start leaves may
// lead to the user's folders. It returns the command.
func CheckConfined(t *testing.T, a worker.Adapter, task *worker.Task, e worker.ModelEndpoint) worker.Command {
	t.Helper()
	users := task.Getenv("HOME")
	home := Confine(t, task, e)
	task.Environ = append(task.Environ, "SETTINGS_KEY="+realKey) // as the settings' key_env would be passed
	s, err := a.Start(task)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Command()
	for _, word := range slices.Concat(c.Args, c.Env, c.Read, c.Write, []string{string(c.Stdin)}) {
		if strings.Contains(word, realKey) {
			t.Errorf("the command has a real key: %q", word)
		}
		if users != "" && strings.Contains(word, users) {
			t.Errorf("the command names the user's home: %q", word)
		}
	}
	if !slices.Contains(c.Env, "HOME="+home) {
		t.Errorf("HOME is not the private home %s: %q", home, c.Env)
	}
	for _, root := range []string{task.Home, task.Scratch, home} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.Type()&fs.ModeSymlink != 0:
				to, _ := os.Readlink(path)
				t.Errorf("%s is a link to %s", path, to)
			case d.Type().IsRegular():
				if data := Read(t, path); bytes.Contains(data, []byte(realKey)) || users != "" && bytes.Contains(data, []byte(users)) {
					t.Errorf("%s holds a real key or names the user's home: %s", path, data)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// testConfined is CheckConfined for any adapter.
func (c Config) testConfined(t *testing.T) {
	CheckConfined(t, c.Adapter, c.task(t, "confined"), worker.ModelEndpoint{URL: "http://127.0.0.1:40123", Key: "the-runs-key", API: worker.OpenAIChat})
}
