package cli

import (
	"path/filepath"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/statedir"
)

// TestTokensOfWhomever: a server that finds a token which another process has made
// records it, and as nobody's that it did not see.
func TestTokensOfWhomever(t *testing.T) {
	dir := t.TempDir()
	tokens, err := access.OpenTokens(t.Context(), statedir.Files(dir))
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(filepath.Join(dir, "audit"), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, seen := &engine{audit: log, listeners: &listeners{tokens: tokens}}, tokensSeen{}
	seen.note(t.Context(), e, true)
	if _, _, err := tokens.Create(t.Context(), "ci", access.Operate, 0); err != nil {
		t.Fatal(err)
	}
	seen.note(t.Context(), e, false)
	if _, err := tokens.Revoke(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	seen.note(t.Context(), e, false)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	list, _, err := audit.Last(filepath.Join(dir, "audit"), 100, func(r *api.AuditRecord) bool { return r.Target == "ci" })
	if err != nil || len(list) != 2 || list[0].Action != tokenCreated || list[1].Action != tokenRevoked {
		t.Fatalf("records %+v, %v", list, err)
	}
	for _, r := range list {
		if r.Who != (api.AuditWho{Name: "unknown", Door: "cli"}) {
			t.Errorf("%s is recorded as that of %+v", r.Action, r.Who)
		}
	}
}
