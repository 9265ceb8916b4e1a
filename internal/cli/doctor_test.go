package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/sandbox"
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

// How runs are held is told as this host does it, and nobody is told to set what it lacks.
func TestSandboxIsExamined(t *testing.T) {
	lacks := &sandbox.Problem{What: "darwin/arm64 has no sandbox"}
	bwrap := &sandbox.Problem{What: "bubblewrap is not installed", Mend: "sudo dnf install bubblewrap"}
	for name, tc := range map[string]struct {
		level  job.SandboxLevel
		host   sandbox.Host
		status string
		note   string
		listed bool // what is not held
	}{
		"nothing is there":         {host: sandbox.Host{Standard: lacks, Bubblewrap: lacks}, status: "error", note: "no more than level none; darwin/arm64 has no sandbox; to let runs do all that their user may: `scheduler doctor --fix`"},
		"none is allowed":          {level: job.SandboxNone, host: sandbox.Host{Standard: lacks, Bubblewrap: lacks}, status: "ok", note: "all that its user may: darwin/arm64 has no sandbox"},
		"asked for, and not there": {level: job.SandboxStandard, host: sandbox.Host{Standard: lacks, Bubblewrap: lacks}, status: "error", note: "no more than none; darwin/arm64"},
		"not asked for":            {host: sandbox.Host{ABI: 6, Bubblewrap: bwrap}, status: "ok", listed: true},
		"less is asked for":        {level: job.SandboxNone, host: sandbox.Host{ABI: 6, Bubblewrap: bwrap}, status: "warning", note: "since sandbox.level is none; this host has standard"},
		"standard":                 {level: job.SandboxStandard, host: sandbox.Host{ABI: 6, Bubblewrap: bwrap}, status: "ok", listed: true},
		"strict, and not there":    {level: job.SandboxStrict, host: sandbox.Host{ABI: 6, Bubblewrap: bwrap}, status: "error", note: "no more than standard; bubblewrap is not installed: sudo dnf"},
		"strict":                   {level: job.SandboxStrict, host: sandbox.Host{ABI: 6, Bwrap: "/usr/bin/bwrap"}, status: "ok", listed: true},
	} {
		cfg := config.Default()
		cfg.Sandbox.Level = tc.level
		f := examineSandbox(&cfg, tc.host)[0]
		if f.Status != tc.status || f.Required != (tc.status == "error") || !strings.Contains(f.Note, tc.note) || (len(f.NotHeld) > 0) != tc.listed {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// aged is an adapter whose program prints this version.
type aged struct {
	worker.Adapter
	path string
}

func (a aged) Locate(job.WorkerSettings) (string, error) { return a.path, nil }

func (a aged) Version(ctx context.Context, path string) (string, error) {
	return worker.ProgramVersion(ctx, path)
}

// A program's version is judged by what is known to work, and the range is told.
func TestVersionsAreExamined(t *testing.T) {
	p := worker.Package{Name: "@x/agent", Program: "agent", Oldest: "1.2.0", Version: "1.4.0"}
	for version, want := range map[string]struct{ status, note string }{
		"1.4.0":   {"ok", "tested with versions 1.2.0 to 1.4.0"},
		"1.3.9":   {"ok", "tested with versions 1.2.0 to 1.4.0"},
		"1.10.0":  {"warning", "tested with versions 1.2.0 to 1.4.0"},
		"1.1.9":   {"error", "agent 1.1.9 is too old: version 1.2.0 or later is needed; update it: npm install -g @x/agent@1.4.0"},
		"nothing": {"error", "no version in"},
	} {
		path := filepath.Join(t.TempDir(), "agent")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho agent "+version+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		f := examineWorker(t.Context(), "agent", aged{path: path}, p, job.WorkerSettings{}, func(string) string { return "" })
		if f.Status != want.status || !strings.Contains(f.Note, want.note) {
			t.Errorf("%s: %+v", version, f)
		}
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
