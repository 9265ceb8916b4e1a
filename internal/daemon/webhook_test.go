package daemon

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// webhook answers posts with f at a path that is to be kept secret.
func webhook(t *testing.T, f http.HandlerFunc) (address string) {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL + "/secret?key=secret"
}

func TestPost(t *testing.T) {
	var got string
	address := webhook(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.String() + " " + r.Header.Get("Content-Type") + " " + string(body)
		w.WriteHeader(http.StatusAccepted)
		// More than anybody would read.
		for range 1000 {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	if err := post(t.Context(), address, []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if want := `POST /secret?key=secret application/json {"a":1}`; got != want {
		t.Errorf("the webhook got %q, want %q", got, want)
	}
}

func TestPostFails(t *testing.T) {
	elsewhere := webhook(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, tt := range []struct{ name, address, want string }{
		{"refusal", webhook(t, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "not you\x1b[2J"+strings.Repeat("x", 10_000), http.StatusForbidden)
		}), `403 Forbidden: "not you\x1b[2Jx`},
		{"redirect", webhook(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		}), "307"},
		{"nobody there", gone.URL + "/secret", "connection refused"},
		{"no URL", "http://a b/secret", "invalid character"},
		{"other scheme", "ftp://host/secret", "unsupported protocol scheme"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := post(t.Context(), tt.address, []byte(`{}`))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want one with %q and without the address", err, tt.want)
			}
			if err != nil && len(err.Error()) > 3*maxRefusal {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestPostEnds: a webhook that does not answer is left when the time is over.
func TestPostEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	address := webhook(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then does the server notice that the client has gone
		cancel(errTimeout)
		<-r.Context().Done()
	})
	err := post(ctx, address, []byte(`{}`))
	if !errors.Is(err, errTimeout) {
		t.Errorf("error %v, want %v", err, errTimeout)
	}
}
