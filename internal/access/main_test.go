package access

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a TCP door with a token of each role, before a handler that tells who
// asks.
type fixture struct {
	docs     statedir.Documents
	tokens   *Tokens
	sessions *Sessions
	links    *Links
	guard    *Guard
	handler  http.Handler
	text     map[Role]string // the tokens
	stranger func(*http.Request) bool

	mu       sync.Mutex
	refusals []Refusal
}

func newFixture(t testing.TB, s Settings) *fixture {
	t.Helper()
	f := &fixture{docs: statedir.Files(t.TempDir()), links: &Links{}, text: map[Role]string{}}
	var err error
	if f.tokens, err = OpenTokens(t.Context(), f.docs); err != nil {
		t.Fatal(err)
	}
	for _, role := range Roles() {
		if _, f.text[role], err = f.tokens.Create(t.Context(), "the-"+string(role), role, 0); err != nil {
			t.Fatal(err)
		}
	}
	if f.sessions, err = OpenSessions(t.Context(), f.docs); err != nil {
		t.Fatal(err)
	}
	f.guard, err = NewGuard(GuardConfig{Door: TCP, Tokens: f.tokens, Sessions: f.sessions, Settings: s, OnRefused: func(_ context.Context, r Refusal) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refusals = append(f.refusals, r)
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.route()
	return f
}

func (f *fixture) route() {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/me", Me)
	mux.Handle("/login", LoginHandler(f.links, f.sessions, f.stranger))
	mux.Handle("/logout", LogoutHandler(f.sessions))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p, _ := From(r.Context())
		w.Header().Set("X-Principal", p.Name+"/"+string(p.Role)+"/"+string(p.Door))
	})
	f.handler = f.guard.Handler(mux)
}

// restart has the sessions read again, as after a restart.
func (f *fixture) restart(t *testing.T) {
	t.Helper()
	var err error
	if f.sessions, err = OpenSessions(t.Context(), f.docs); err != nil {
		t.Fatal(err)
	}
	f.guard.sessions = f.sessions
	f.route()
}

func (f *fixture) told() []Refusal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refusals
}

const home = "127.0.0.1:7433"

// request is one that reaches the fixture from loopback, with headers in pairs.
func request(method, target string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.Host, r.RemoteAddr = home, "127.0.0.1:50000"
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7433}
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	return r
}

func (f *fixture) do(r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return w.Result()
}

// problemIn returns the problem that an answer holds, which must be one.
func problemIn(t *testing.T, resp *http.Response) *api.Problem {
	t.Helper()
	p := &api.Problem{}
	err := json.NewDecoder(resp.Body).Decode(p)
	if err != nil || resp.Header.Get("Content-Type") != "application/problem+json" || p.Status != resp.StatusCode || p.Title == "" || p.Detail == "" || p.Name() == "" {
		t.Fatalf("%s with %v is no problem: %+v, %v", resp.Status, resp.Header, p, err)
	}
	return p
}

func principalIn(resp *http.Response) string { return resp.Header.Get("X-Principal") }

const nobody = "//" // in X-Principal
