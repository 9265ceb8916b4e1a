package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/statedir"
)

func TestAuditCommands(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if _, err := statedir.Open(state); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		m := newTestMain(t, &stdout)
		m.con.stderr = &stderr
		root := m.rootCommand()
		if cmd, _, err := root.Find([]string{"audit"}); err != nil || cmd == root {
			root.AddCommand(auditCommand(m.con, m.local, m.at))
		}
		root.SetArgs(append([]string{"--state", state}, args...))
		if err := root.Execute(); err != nil {
			var exit *exitError
			if !errors.As(err, &exit) {
				t.Fatalf("%v: %v", args, err)
			}
			return exit.code, stdout.String(), err.Error()
		}
		return 0, stdout.String(), stderr.String()
	}
	if code, _, text := do("audit", "verify"); code != exitUsage || !strings.Contains(text, "no audit log") {
		t.Errorf("without a log: %d, %s", code, text)
	}
	dir := filepath.Join(state, "audit")
	l, err := audit.Open(dir, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []audit.Entry{
		{Who: api.AuditWho{Name: "ann", Role: "operate", Door: "unix"}, Action: "request", Target: "/v1/pause"},
		{Who: api.AuditWho{Name: "codex", Role: audit.RoleAgent, Door: "core"}, Action: audit.ActionCommand, Job: "0198-job", Attempt: 1, Detail: api.AuditCommand{Command: "go test \x1b[31m"}},
	} {
		if err := l.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	head := l.Head().String()
	for _, args := range [][]string{{}, {dir}, {filepath.Join(dir, "audit-000001.jsonl")}, {"--expect", head}} {
		code, out, text := do(append([]string{"audit", "verify"}, args...)...)
		if code != 0 || !strings.Contains(out, "whole: 3 records in 1 file, from record 1 on\n") || !strings.Contains(out, "last: "+head+"\n") {
			t.Errorf("verify %v: %d, %s, %s", args, code, out, text)
		}
	}
	if code, out, _ := do("audit", "tail", "-n", "1"); code != 0 || !strings.Contains(out, "codex") || strings.Contains(out, "ann") || strings.Contains(out, "\x1b") {
		t.Errorf("tail: %d, %q", code, out)
	}
	if _, out, _ := do("audit", "tail", "--who", "ann"); !strings.Contains(out, "/v1/pause") || strings.Contains(out, "codex") {
		t.Errorf("tail --who: %s", out)
	}
	_, out, _ := do("audit", "tail", "--job", "0198", "--json")
	var r api.AuditRecord
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Job != "0198-job" || r.Hash == "" {
		t.Errorf("tail --job --json: %s, %v", out, err)
	}
	if code, _, text := do("audit", "verify", "--expect", "1:zz"); code != exitUsage || !strings.Contains(text, "SEQ:HASH") {
		t.Errorf("a bad anchor: %d, %s", code, text)
	}

	path := filepath.Join(dir, "audit-000001.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte("ann"), []byte("bob"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, text := do("audit", "verify"); code != exitFailed || !strings.Contains(out, "audit-000001.jsonl:2 (record 2): edited: ") || !strings.Contains(text, "1 problem") {
		t.Errorf("edited: %d, %s, %s", code, out, text)
	}
	if code, out, _ := do("audit", "verify", "--json"); code != exitFailed || !strings.Contains(out, `"kind": "edited"`) {
		t.Errorf("edited: %d, %s", code, out)
	}
}
