package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/queue"
)

// TestUnavailable: what only reads has some seconds of patience with a database that is away, and is told that it is.
// What changes something waits for it.
func TestUnavailable(t *testing.T) {
	var upgrading time.Duration
	d := open(t, 0, func(o *server.Options) {
		o.Fleet = func(ctx context.Context) (api.Fleet, error) {
			return api.Fleet{}, fmt.Errorf("patience %s: %w", queue.Patience(ctx), queue.ErrUnavailable)
		}
		o.Upgrade = func(ctx context.Context, _ api.Upgrade) error { upgrading = queue.Patience(ctx); return nil }
	})
	w := httptest.NewRecorder()
	d.server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/fleet", nil))
	if text := w.Body.String(); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
		!strings.Contains(text, "no_database") || !strings.Contains(text, "patience 3s") {
		t.Errorf("a read: %d %v %s", w.Code, w.Header(), text)
	}
	upgrading = -1
	w = httptest.NewRecorder()
	d.server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/upgrade", strings.NewReader(`{"mode":"checkpoint"}`)))
	if upgrading != 0 {
		t.Errorf("what changes something has patience for %s: %d %s", upgrading, w.Code, w.Body)
	}
}
