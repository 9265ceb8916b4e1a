package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// What doctor says of permits is what the configuration does.
func TestPermitsAreExamined(t *testing.T) {
	cfg := config.Default()
	if f := examinePermits(&cfg); f.Status != "ok" || !strings.Contains(f.Note, "lapse 1m0s after") {
		t.Errorf("by default: %+v", f)
	}
	cfg.Heartbeat.PermitValidity = 0
	if f := examinePermits(&cfg); f.Status != "warning" || !strings.Contains(f.Note, "heartbeat.permit_validity") {
		t.Errorf("without a validity: %+v", f)
	}
}

// A worker without a login or a key is not called ready.
func TestCredentials(t *testing.T) {
	for kind, with := range map[string]struct{ variable, file string }{
		"codex":  {"OPENAI_API_KEY", ".codex/auth.json"},
		"claude": {"CLAUDE_CODE_OAUTH_TOKEN", ".claude/.credentials.json"},
	} {
		c, ok := agentcore.Adapters()[kind].(worker.Credentialed)
		if !ok {
			t.Errorf("%s does not look for a login", kind)
			continue
		}
		home := t.TempDir()
		environ := map[string]string{"HOME": home}
		getenv := func(name string) string { return environ[name] }
		if todo := c.Credentials(job.WorkerSettings{}, getenv); !strings.Contains(todo, "run `"+kind) && !strings.Contains(todo, "log in") {
			t.Errorf("%s without anything: %q", kind, todo)
		}
		environ[with.variable] = "key"
		if todo := c.Credentials(job.WorkerSettings{}, getenv); todo != "" {
			t.Errorf("%s with %s: %q", kind, with.variable, todo)
		}
		if todo := c.Credentials(job.WorkerSettings{BaseURL: "http://localhost", KeyEnv: "MINE"}, getenv); !strings.Contains(todo, "MINE") {
			t.Errorf("%s with an endpoint and no key for it: %q", kind, todo)
		}
		delete(environ, with.variable)
		path := filepath.Join(home, filepath.FromSlash(with.file))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if todo := c.Credentials(job.WorkerSettings{}, getenv); todo != "" {
			t.Errorf("%s with a login: %q", kind, todo)
		}
	}
}
