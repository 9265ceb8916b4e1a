package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
)

// A scheduler in whose place another one leads does not undo what that has written.
func TestCordonOfDeposed(t *testing.T) {
	d := open(t, 0)
	dir := filepath.Dir(d.socket)
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		d.server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/nodes/b/cordon", http.NoBody))
		return w
	}
	if w := ask(); w.Code != http.StatusOK {
		t.Fatalf("cordon: %d %s", w.Code, w.Body)
	}
	const theirs = `{"cordoned": {}}`
	if err := os.WriteFile(filepath.Join(dir, statedir.NodesFile), []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	if w := ask(); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no_leader") {
		t.Errorf("after another one has written it: %d %s", w.Code, w.Body)
	}
	if text, err := os.ReadFile(filepath.Join(dir, statedir.NodesFile)); err != nil || string(text) != theirs {
		t.Errorf("the document is %q, %v", text, err)
	}
}

// What is out of use on a node alone stands with it, and does not isolate all of it.
func TestNodeHasIsolatedParts(t *testing.T) {
	d := open(t, 0)
	ask := func(method, path, body string) string {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		d.server.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	for _, scope := range []string{"node:b/worker:codex", "node:b/workspace:/srv/x", "worker:claude"} {
		ask("POST", "/v1/pause", `{"scope": "`+scope+`", "reason": "a test"}`)
	}
	var got api.FleetNodes
	if err := json.Unmarshal([]byte(ask("GET", "/v1/nodes", "")), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Nodes) != 2 || got.Nodes[0].Isolation != nil || len(got.Nodes[0].IsolatedParts) != 0 {
		t.Fatalf("the nodes are %+v", got.Nodes)
	}
	if b := got.Nodes[1]; b.Name != "b" || b.Isolation != nil || len(b.IsolatedParts) != 2 || b.IsolatedParts[0].Scope != "node:b/worker:codex" || b.IsolatedParts[1].Scope != "node:b/workspace:/srv/x" {
		t.Errorf("b is %+v", b)
	}
	ask("DELETE", "/v1/nodes/b", "")
	if after := ask("GET", "/v1/nodes", ""); strings.Contains(after, "isolated_parts") {
		t.Errorf("after it was removed: %s", after)
	}
}
