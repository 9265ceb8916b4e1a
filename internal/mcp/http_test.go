package mcp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestOneMessage: what is answered at once is bounded by the size of one message.
func TestOneMessage(t *testing.T) {
	h := handler(t, Options{}, http.NotFoundHandler())
	for body, want := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`: http.StatusOK,
		" \r\n\t[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 2) + `{"jsonrpc":"2.0","id":2,"method":"ping"}]`:                            http.StatusBadRequest,
		strings.Repeat(" ", MaxBody+1): http.StatusRequestEntityTooLarge,
		"":                             http.StatusBadRequest,
	} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%.40q: %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
}
