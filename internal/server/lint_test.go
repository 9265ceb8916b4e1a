package server_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLint: the OpenAPI document passes Redocly's strict rules without an error or a
// warning. Without Redocly the test is skipped, but fails where CI or
// AGENTSCHED_REQUIRE_REDOCLY says that it must be there.
func TestLint(t *testing.T) {
	program, err := filepath.Abs("../../.cache/redocly/node_modules/@redocly/cli/bin/cli.js")
	if err == nil {
		_, err = os.Stat(program)
	}
	node, missing := exec.LookPath("node")
	if err != nil || missing != nil {
		const what = "node or Redocly is missing: scripts/npm internal/server/testdata redocly installs it"
		if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_REDOCLY") != "" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	dir := t.TempDir() // no configuration is found there
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), open(t, 0).server.Document(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, program, "lint", "--extends=recommended-strict", "openapi.json")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("redocly lint: %v\n%s", err, out)
	}
}
