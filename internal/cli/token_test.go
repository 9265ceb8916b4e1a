package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/statedir"
)

// tokenRun runs `scheduler token ARGS` on a state directory.
func tokenRun(state string, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	m := newMain()
	m.con.stdout, m.con.stderr = &out, &errs
	cmd := m.rootCommand()
	cmd.SetArgs(append([]string{"--state", state, "token"}, args...))
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

// A token is made before there is a scheduler, printed alone on stdout, and works;
// it is listed without its text, and gone when it was revoked.
func TestTokenCommands(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if _, _, err := tokenRun(state, "ls"); err == nil {
		t.Error("tokens are listed where there is no state directory")
	}
	text, note, err := tokenRun(state, "create", "ci", "--role", "submit", "--expires", "30d")
	if err != nil || !strings.Contains(note, "not shown again") {
		t.Fatalf("create: %v, %q", err, note)
	}
	tokens, err := access.OpenTokens(t.Context(), statedir.Files(state))
	if err != nil {
		t.Fatal(err)
	}
	p, err := tokens.Check(t.Context(), strings.TrimSuffix(text, "\n"))
	if err != nil || p != (access.Principal{Name: "ci", Role: access.Submit, Door: access.TCP}) {
		t.Errorf("the token is %+v, %v", p, err)
	}
	out, _, err := tokenRun(state, "create", "ops", "--role", "operate", "--json")
	var made newToken
	if err = errors.Join(err, json.Unmarshal([]byte(out), &made)); err != nil {
		t.Fatal(err)
	}
	if p, err := tokens.Check(t.Context(), made.Text); err != nil || p.Name != "ops" || made.Role != access.Operate || !made.Expires.IsZero() {
		t.Errorf("%+v is %+v, %v", made, p, err)
	}
	table, _, err := tokenRun(state, "ls")
	if err != nil || strings.Contains(table, made.Text[14:]) || strings.Count(table, "\n") != 3 || !strings.Contains(table, made.ID+"  ops") {
		t.Errorf("ls: %v\n%s", err, table)
	}
	out, _, err = tokenRun(state, "ls", "--json")
	var list tokenList
	if err = errors.Join(err, json.Unmarshal([]byte(out), &list)); err != nil || len(list.Tokens) != 2 {
		t.Fatalf("ls --json: %v\n%s", err, out)
	}
	if left := time.Until(list.Tokens[0].Expires); left > 30*24*time.Hour || left < 29*24*time.Hour {
		t.Errorf("it ends in %s", left)
	}
	// One that is not there does not keep the others.
	out, _, err = tokenRun(state, "revoke", "ci", "nobody", made.ID)
	if !errors.Is(err, access.ErrNoToken) || !strings.Contains(out, "token ci") || !strings.Contains(out, "token ops") {
		t.Errorf("revoke: %v, %q", err, out)
	}
	if out, _, err := tokenRun(state, "ls"); err != nil || out != "no tokens\n" {
		t.Errorf("then: %v, %q", err, out)
	}
}

func TestTokenCommandsRefuse(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if _, _, err := tokenRun(state, "create", "taken"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"create x --role root", `--role "root"`}, {"create x --expires 0s", "--expires"}, {"create x --expires soon", "--expires"}, {"create x --expires -1h", "--expires"},
		{"create taken", "already"}, {"create", "needs NAME"}, {"create a/b", "token name"}, {"revoke", "needs ID|NAME"}, {"ls x", "takes no arguments"}, {"creat x", "unknown"},
	} {
		out, _, err := tokenRun(state, strings.Fields(tc.args)...)
		var exit *exitError
		if err == nil || !strings.Contains(err.Error(), tc.want) || out != "" || errors.As(err, &exit) && exit.code != exitUsage {
			t.Errorf("%s: %v, %q", tc.args, err, out)
		}
	}
}
