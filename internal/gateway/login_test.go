package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/gateway/credential"
)

// issuer is a scripted provider of subscriptions: a refresh token is good once, and using one twice revokes the login, as OAuth's
// best practice wants it (RFC 9700, section 4.14.2). Access tokens before the latest are refused.
type issuer struct {
	mu       sync.Mutex
	n        int  // of the latest tokens
	revoked  bool // a refresh token was used twice
	expires  time.Duration
	refuses  bool // every access token, the new ones, too
	requests []map[string]string
	asked    []http.Header
}

func (i *issuer) access(n int) string {
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d,"n":%d}`, time.Now().Add(i.expires).Unix(), n))
	return "head." + claims + fmt.Sprintf(".access-%d", n)
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.URL.Path != "/token" {
		i.asked = append(i.asked, r.Header.Clone())
		if i.refuses || !strings.HasSuffix(r.Header.Get("Authorization"), fmt.Sprintf(".access-%d", i.n)) {
			w.WriteHeader(401)
			_, _ = io.WriteString(w, `{"error":{"message":"token expired"}}`)
			return
		}
		says(plainJSON, ok)(w, r)
		return
	}
	var q map[string]string
	_ = json.NewDecoder(r.Body).Decode(&q)
	i.requests = append(i.requests, q)
	if i.revoked || q["refresh_token"] != fmt.Sprintf("refresh-%d", i.n) || q["grant_type"] != "refresh_token" || q["client_id"] == "" {
		i.revoked = true
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
		return
	}
	i.n++
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": i.access(i.n), "refresh_token": fmt.Sprintf("refresh-%d", i.n), "expires_in": int(i.expires.Seconds())})
}

// file writes what the vendor's program would have after a log-in or a refresh.
func (i *issuer) file(kind credential.LoginKind, n int, expires time.Time) string {
	if kind == credential.ClaudeLogin {
		return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":"refresh-%d","expiresAt":%d,"scopes":["user:inference"],"subscriptionType":"max"},"other":{"a":12345678901234567890}}`,
			i.access(n), n, expires.UnixMilli())
	}
	return fmt.Sprintf(`{"OPENAI_API_KEY":null,"tokens":{"id_token":"id","access_token":%q,"refresh_token":"refresh-%d","account_id":"acct"},"last_refresh":"2026-01-01T00:00:00Z","other":{"a":12345678901234567890}}`,
		i.access(n), n)
}

type loginRig struct {
	*issuer
	server  *httptest.Server
	path    string
	kind    credential.LoginKind
	session *Session
}

func newLoginRig(t *testing.T, kind credential.LoginKind) *loginRig {
	t.Helper()
	l := &loginRig{issuer: &issuer{n: 1, expires: time.Hour}, kind: kind}
	l.server = httptest.NewServer(l.issuer)
	dir := t.TempDir()
	real := filepath.Join(dir, "real.json")
	l.path = filepath.Join(dir, "login.json")
	if err := os.Symlink(real, l.path); err != nil {
		t.Fatal(err)
	}
	l.write(t, real, 1)
	t.Cleanup(l.server.Close)
	l.session = l.open(t)
	return l
}

func (l *loginRig) write(t *testing.T, path string, n int) {
	t.Helper()
	if err := os.WriteFile(path, []byte(l.file(l.kind, n, time.Now().Add(time.Hour))), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
}

// open is another core's gateway on the same login.
func (l *loginRig) open(t *testing.T) *Session {
	t.Helper()
	g, err := New(Config{Providers: []Provider{{Name: "p", APIs: []API{Responses, Messages}, BaseURL: l.server.URL, NoOutputLimit: true,
		Keys: []credential.Key{{Login: &credential.Login{Kind: l.kind, File: l.path, TokenURL: l.server.URL + "/token"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	s, err := g.Open(ampleRun(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func eachLogin(t *testing.T, f func(t *testing.T, l *loginRig)) {
	for _, kind := range []credential.LoginKind{credential.CodexLogin, credential.ClaudeLogin} {
		t.Run(string(kind), func(t *testing.T) { f(t, newLoginRig(t, kind)) })
	}
}

func TestLogin(t *testing.T) {
	eachLogin(t, func(t *testing.T, l *loginRig) {
		for range 2 {
			if w := serveTo(l.session, "/v1/messages", `{"model":"m","max_tokens":5}`); w.Code != 200 {
				t.Fatalf("answered %d %s", w.Code, w.Body)
			}
		}
		h := l.asked[0]
		wantAccount, wantBeta := "acct", ""
		if l.kind == credential.ClaudeLogin {
			wantAccount, wantBeta = "", "oauth-2025-04-20"
		}
		if h.Get("Chatgpt-Account-Id") != wantAccount || h.Get("Anthropic-Beta") != wantBeta || h.Get("X-Api-Key") != "" || len(l.requests) != 0 {
			t.Errorf("headers %v after %d refreshes", h, len(l.requests))
		}
	})
}

// TestLoginRefresh: when the provider refuses the token, it is refreshed once however many runs and cores want it, and what
// comes is written into the file, of which all else stays.
func TestLoginRefresh(t *testing.T) {
	eachLogin(t, func(t *testing.T, l *loginRig) {
		sessions := []*Session{l.session, l.open(t)}
		for round := 2; round < 5; round++ {
			l.mu.Lock()
			l.expires = time.Hour
			if round > 2 { // as if the tokens had come to their end: the provider refuses all that it has given
				l.n++
			}
			l.mu.Unlock()
			if round == 2 {
				l.write(t, l.path, 0) // an old access token
				fixRefresh(t, l.path, 1)
			} else {
				fixRefresh(t, l.path, l.n)
			}
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() {
					if w := serveTo(sessions[i%2], "/v1/responses", `{"model":"m"}`); w.Code != 200 {
						t.Errorf("round %d: answered %d %s", round, w.Code, w.Body)
					}
				})
			}
			all.Wait()
			if len(l.requests) != round-1 || l.revoked {
				t.Fatalf("round %d: %d refreshes in all (revoked: %v), want %d", round, len(l.requests), l.revoked, round-1)
			}
		}
		text, err := os.ReadFile(l.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`"a": 12345678901234567890`, fmt.Sprintf(`"refresh-%d"`, l.n), fmt.Sprintf(`.access-%d"`, l.n)} {
			if !strings.Contains(string(text), part) {
				t.Errorf("the file has no %s:\n%s", part, text)
			}
		}
		link, _ := os.Lstat(l.path)
		info, _ := os.Stat(l.path)
		if info.Mode().Perm() != 0o640 || link.Mode()&os.ModeSymlink == 0 {
			t.Errorf("the file has mode %v, the link %v", info.Mode(), link.Mode())
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(l.path), ".login-*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// fixRefresh sets the refresh token of a file.
func fixRefresh(t *testing.T, path string, n int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(string(text), "refresh-")
	fixed := string(text[:i]) + fmt.Sprintf("refresh-%d", n) + string(text[i+len("refresh-0"):])
	if err := os.WriteFile(path, []byte(fixed), 0o640); err != nil {
		t.Fatal(err)
	}
}

// TestLoginBeforeItsEnd: a token that is about to end is refreshed before it is refused.
func TestLoginBeforeItsEnd(t *testing.T) {
	eachLogin(t, func(t *testing.T, l *loginRig) {
		l.mu.Lock()
		l.expires = time.Minute
		text := l.file(l.kind, 1, time.Now().Add(time.Minute))
		l.expires = time.Hour
		l.mu.Unlock()
		if err := os.WriteFile(l.path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if w := serveTo(l.session, "/v1/responses", `{"model":"m"}`); w.Code != 200 {
				t.Fatalf("answered %d %s", w.Code, w.Body)
			}
		}
		if len(l.requests) != 1 || len(l.asked) != 2 {
			t.Errorf("%d refreshes, %d requests; want 1 and 2", len(l.requests), len(l.asked))
		}
	})
}

// TestLoginOfTheUser: what the user's own program has refreshed is taken, and its refresh token is not spent.
func TestLoginOfTheUser(t *testing.T) {
	eachLogin(t, func(t *testing.T, l *loginRig) {
		if w := serveTo(l.session, "/v1/responses", `{"model":"m"}`); w.Code != 200 {
			t.Fatalf("answered %d", w.Code)
		}
		l.mu.Lock()
		l.n = 2
		l.mu.Unlock()
		l.write(t, l.path, 2)
		if w := serveTo(l.session, "/v1/responses", `{"model":"m"}`); w.Code != 200 || len(l.requests) != 0 {
			t.Errorf("answered %d after %d refreshes, want none", w.Code, len(l.requests))
		}
	})
}

// TestLoginLost: a login that cannot be refreshed says to whom it belongs what to do, and nothing to the run.
func TestLoginLost(t *testing.T) {
	eachLogin(t, func(t *testing.T, l *loginRig) {
		l.mu.Lock()
		l.n = 7 // revoked elsewhere
		l.mu.Unlock()
		before, _ := os.ReadFile(l.path)
		for range 3 {
			w := serveTo(l.session, "/v1/responses", `{"model":"m"}`)
			if w.Code != 401 || strings.Contains(w.Body.String(), "refresh-") {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
		}
		if after, _ := os.ReadFile(l.path); string(after) != string(before) || len(l.requests) != 1 {
			t.Errorf("%d refreshes; the file before:\n%s\nafter:\n%s", len(l.requests), before, after)
		}
		want := `log in again with "codex login"`
		if l.kind == credential.ClaudeLogin {
			want = `log in again with "claude /login"`
		}
		source := l.session.gateway.providers[0].keys[0].source
		have, _ := source.Secret(t.Context(), "")
		_, err := source.Secret(t.Context(), have.Token)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), l.path) || strings.Contains(err.Error(), "refresh-1") {
			t.Errorf("error %v, want %q", err, want)
		}
	})
}

// TestLoginRefused: a provider that refuses what it has just given is not asked for more and more.
func TestLoginRefused(t *testing.T) {
	eachLogin(t, func(t *testing.T, l *loginRig) {
		l.mu.Lock()
		l.refuses = true
		l.mu.Unlock()
		for range 3 {
			if w := serveTo(l.session, "/v1/responses", `{"model":"m"}`); w.Code != 401 || !strings.Contains(w.Body.String(), "token expired") {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
		}
		if len(l.requests) != 1 || len(l.asked) != 2 {
			t.Errorf("%d refreshes and %d requests, want 1 and 2", len(l.requests), len(l.asked))
		}
	})
}
