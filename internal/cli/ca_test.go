package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/config"
)

// What `ca issue` prints is a configuration that is right, once it stands in a file; no key is printed.
func TestAuthorityCommands(t *testing.T) {
	m := newTestMain(t, nil)
	if code, said := sayIn(t, m, "ca", "issue", "a", "--host", "a.example.com"); code != exitUsage || !strings.Contains(said, "hint: `scheduler ca init`") {
		t.Errorf("issue without an authority: exit code %d: %s", code, said)
	}
	if code, said := sayIn(t, m, "ca", "init"); code != exitOK {
		t.Fatalf("init: exit code %d: %s", code, said)
	}
	code, said := sayIn(t, m, "ca", "issue", "a", "--host", "a.example.com", "--host", "::1")
	_, text, found := strings.Cut(said, "\n\n")
	if code != exitOK || !found || strings.Contains(said, "PRIVATE") {
		t.Fatalf("issue: exit code %d: %s", code, said)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file, config.Options{})
	if want := filepath.Join(m.local.stateDir, "ca", "a.key"); err != nil || cfg.API.TLS.Key != want || len(cfg.API.Hosts) != 2 {
		t.Errorf("%+v, %v, want the key %s and two hosts:\n%s", cfg.API, err, want, text)
	}
	if code, said := sayIn(t, m, "ca", "init"); code != exitUsage || !strings.Contains(said, "already") {
		t.Errorf("init again: exit code %d: %s", code, said)
	}
	code, said = sayIn(t, m, "ca", "ls", "--json")
	var list certificates
	if err := json.Unmarshal([]byte(said), &list); code != exitOK || err != nil || len(list.Certificates) != 2 || list.Certificates[1].Name != "a" {
		t.Errorf("ls: exit code %d, %v: %s", code, err, said)
	}
	if code, said := sayIn(t, m, "ca", "issue", "a", "--expires", "90d"); code != exitOK || !strings.Contains(said, "a.example.com, ::1") {
		t.Errorf("renewal: exit code %d: %s", code, said)
	}
}
