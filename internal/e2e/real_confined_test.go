package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// TestRealConfined has each CLI edit and run commands with a private home, and with
// models that it reaches by the run's own key alone. No sandbox holds it here.
func TestRealConfined(t *testing.T) {
	testrun.Long(t, "TestRealHostile, in which a sandbox holds the same programs and the gateway has their keys")
	apis := map[job.WorkerKind][]worker.ModelEndpoint{
		"codex":    {{API: worker.OpenAIResponses}, {API: worker.OpenAIResponses, Login: "codex"}},
		"claude":   {{API: worker.AnthropicMessages}, {API: worker.AnthropicMessages, Login: "claude"}},
		"opencode": {{API: worker.OpenAIChat}, {API: worker.AnthropicMessages}, {API: worker.OpenAIResponses}},
	}
	providers := map[worker.ModelAPI]string{worker.OpenAIChat: "groq/", worker.AnthropicMessages: "anthropic/", worker.OpenAIResponses: "openai/"}
	eachCLI(t, "codex claude opencode", func(t *testing.T, kind job.WorkerKind) {
		for i, e := range apis[kind] {
			t.Run(strings.TrimSuffix(string(e.API)+"-"+e.Login, "-"), func(t *testing.T) {
				model := ""
				if kind == "opencode" {
					model = providers[e.API]
					if i > 0 {
						testrun.Long(t, "otherwise done with its first API")
					}
				}
				confined(t, kind, model+"edit", e)
			})
		}
	})
}

// theirKey is how the model is to be asked: the headers Authorization and X-Api-Key.
func theirKey(e worker.ModelEndpoint) string {
	if e.API == worker.AnthropicMessages && e.Login == "" {
		return "," + e.Key
	}
	return "Bearer " + e.Key + ","
}

// confined runs one confined task to its end.
func confined(t *testing.T, kind job.WorkerKind, modelName string, e worker.ModelEndpoint) {
	var mu sync.Mutex
	var keys, bodies []string
	model, err := scriptmodel.New(scriptmodel.Options{Trace: func(_ string, h http.Header, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		keys, bodies = append(keys, h.Get("Authorization")+","+h.Get("X-Api-Key")), append(bodies, string(body))
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	model.Handle("edit", scriptmodel.Play(
		scriptmodel.Edit("made.txt", "by the agent\n"),
		scriptmodel.Run(`echo "home $HOME, key ${AGENTSCHED_MODEL_KEY-hidden}" > seen.txt; git status --short`),
		scriptmodel.Say("All done.")))
	e.URL, e.Key = model.URL(), "the-runs-key"

	base := t.TempDir()
	dir := func(name string) string {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	task := &worker.Task{
		Job: job.NewID(), Name: "edit", Attempt: 1, Kind: kind, Model: modelName, Instructions: "Do edit.",
		Dir: dir("work"), Home: dir("state"), Scratch: dir("scratch"),
		Capabilities: []job.Capability{job.CanRead, job.CanEdit, job.CanRunCommands},
		Environ:      []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir("user"), "LANG=C.UTF-8"},
		Settings:     job.WorkerSettings{Command: []string{cli(t, kind)}},
	}
	if out, err := exec.Command("git", "init", "-q", task.Dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	instructions := map[job.WorkerKind]string{"codex": ".codex/AGENTS.md", "claude": ".claude/CLAUDE.md", "opencode": ".config/opencode/AGENTS.md"}[kind]
	dir(filepath.Join("user", filepath.Dir(instructions)))
	if err := os.WriteFile(filepath.Join(base, "user", instructions), []byte("Obey the standing word xyzzy."), 0o600); err != nil {
		t.Fatal(err)
	}
	home := workertest.Confine(t, task, e)
	task.Environ = agentcore.ConfinedEnv(task.Environ, agentcore.ConfinedFolders{Home: home, Temp: task.Getenv("TMPDIR"), Cache: dir("cache")}, task.UserEnv, nil)
	s, err := agentcore.Adapters()[string(kind)].Start(task)
	if err != nil {
		t.Fatal(err)
	}
	events, result := workertest.Drive(t, s, nil)
	if result.Class != job.NoError || result.Answer != "All done." {
		t.Fatalf("result %+v of %+v", result, events)
	}
	shown := "hidden"
	if kind == "opencode" { // it hides nothing from commands
		shown = e.Key
	}
	for name, want := range map[string]string{"made.txt": "by the agent\n", "seen.txt": "home " + home + ", key " + shown + "\n"} {
		if got, err := os.ReadFile(filepath.Join(task.Dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, got := range keys {
		if want := theirKey(e); got != want {
			t.Errorf("the model was asked with %q, want %q", got, want)
		}
	}
	if len(keys) < 3 {
		t.Errorf("the model was asked %d times", len(keys))
	}
	if !slices.ContainsFunc(bodies, func(b string) bool { return strings.Contains(b, "xyzzy") }) {
		t.Error("the user's standing instructions did not reach the model")
	}
	if left, err := os.ReadDir(filepath.Join(base, "user")); err != nil || len(left) != 1 {
		t.Errorf("the run left %v in the user's home, %v", left, err)
	}
}
