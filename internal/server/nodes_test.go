package server_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
