package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// play is a provider without a network, so that time can be virtual.
type play func(key string, body string) (status int, header http.Header, answer string)

func (p play) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	status, header, answer := p(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), string(body))
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// request asks a session directly.
func serveTo(s *Session, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("X-Api-Key", s.Key())
	s.ServeHTTP(w, r)
	return w
}

// accounts are the keys of a provider, by which its answers are chosen.
type accounts map[string]func() (int, http.Header, string)

func fine() (int, http.Header, string) { return 200, nil, ok }

func limitedFor(d string) func() (int, http.Header, string) {
	return func() (int, http.Header, string) {
		return 429, http.Header{"Retry-After": {d}}, `{"error":{"message":"slow down"}}`
	}
}

// withKeys opens a session at a provider with these keys, which notes who was asked.
func withKeys(t *testing.T, names []string, answers accounts, asked *[]string, limited *[]Limited) (*Gateway, *Session) {
	t.Helper()
	var keys []credential.Key
	for _, n := range names {
		keys = append(keys, credential.Key{Name: n, Value: n + "-0123456789"})
	}
	g, err := New(Config{
		Providers: []Provider{{Name: "p", APIs: []API{Responses}, BaseURL: "https://p.example/v1", Keys: keys}},
		Transport: play(func(key, _ string) (int, http.Header, string) {
			name, _, _ := strings.Cut(key, "-")
			*asked = append(*asked, name)
			return answers[name]()
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	run := ampleRun(t)
	run.Limited = func(l Limited) { *limited = append(*limited, l) }
	s, err := g.Open(run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g, s
}

func TestKeysTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		var limited []Limited
		answers := accounts{"a": fine, "b": fine, "c": fine}
		_, s := withKeys(t, []string{"a", "b", "c"}, answers, &asked, &limited)
		want := func(status int, who string) {
			t.Helper()
			asked = nil
			if w := serveTo(s, "/v1/responses", `{"model":"m"}`); w.Code != status {
				t.Fatalf("answered %d %s, want %d", w.Code, w.Body, status)
			}
			if got := strings.Join(asked, " "); got != who {
				t.Fatalf("asked %q, want %q", got, who)
			}
		}
		want(200, "a")
		want(200, "a") // a run stays with its key
		answers["a"] = limitedFor("60")
		want(200, "a b") // the next one answers at once
		answers["a"] = fine
		want(200, "b")
		time.Sleep(61 * time.Second)
		want(200, "b") // it stays with this one, too
		answers["a"], answers["b"], answers["c"] = limitedFor("60"), limitedFor("30"), limitedFor("90")
		want(429, "b a c")
		if len(limited) != 1 || limited[0].Until != time.Now().Add(30*time.Second) || limited[0].Provider != "p" || limited[0].Model != "m" || limited[0].Account || limited[0].Message != "slow down" {
			t.Fatalf("told %+v, want the earliest of the three times", limited)
		}
		time.Sleep(10 * time.Second)
		asked = nil
		w := serveTo(s, "/v1/responses", `{"model":"m"}`)
		if w.Code != 429 || w.Header().Get("Retry-After") != "20" || len(asked) != 0 || !strings.Contains(w.Body.String(), "slow down") {
			t.Fatalf("while all rest: %d %v %s, asked %v", w.Code, w.Header(), w.Body, asked)
		}
		if w := serveTo(s, "/v1/responses", `{"model":"other"}`); w.Code != 429 || len(asked) != 3 {
			t.Fatalf("a rate is one of the model: %d, asked %v", w.Code, asked)
		}
		answers["b"] = fine
		time.Sleep(21 * time.Second)
		want(200, "b")
	})
}

// TestRefusedKeys: a key that is refused or used up rests for all models, and the next one is taken.
func TestRefusedKeys(t *testing.T) {
	quota := func() (int, http.Header, string) {
		return 429, nil, `{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"pay"}}`
	}
	refused := func() (int, http.Header, string) { return 401, nil, `{"error":{"message":"who?"}}` }
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		var limited []Limited
		_, s := withKeys(t, []string{"a", "b", "c"}, accounts{"a": refused, "b": quota, "c": fine}, &asked, &limited)
		for _, model := range []string{"m", "n"} {
			if w := serveTo(s, "/v1/responses", `{"model":"`+model+`"}`); w.Code != 200 {
				t.Fatalf("answered %d %s", w.Code, w.Body)
			}
		}
		if got := strings.Join(asked, " "); got != "a b c c" {
			t.Fatalf("asked %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		var limited []Limited
		_, s := withKeys(t, []string{"a", "b"}, accounts{"a": quota, "b": refused}, &asked, &limited)
		w := serveTo(s, "/v1/responses", `{"model":"m"}`)
		if w.Code != 429 || len(limited) != 1 || !limited[0].Account || limited[0].Until != time.Now().Add(cooldownCredit) {
			t.Fatalf("answered %d %s, told %+v", w.Code, w.Body, limited)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		var limited []Limited
		_, s := withKeys(t, []string{"a"}, accounts{"a": refused}, &asked, &limited)
		for range 2 {
			if w := serveTo(s, "/v1/responses", `{"model":"m"}`); w.Code != 401 || !strings.Contains(w.Body.String(), "who?") {
				t.Fatalf("answered %d %s", w.Code, w.Body)
			}
		}
		if len(asked) != 1 || len(limited) != 0 {
			t.Fatalf("asked %v, told %v: a refused key is not tried each time", asked, limited)
		}
	})
}

// TestKeysAreShared: runs are spread over the keys.
func TestKeysAreShared(t *testing.T) {
	var asked []string
	var limited []Limited
	g, s := withKeys(t, []string{"a", "b"}, accounts{"a": fine, "b": fine}, &asked, &limited)
	for range 4 {
		serveTo(s, "/v1/responses", `{"model":"m"}`)
		s.Close()
		s, _ = g.Open(ampleRun(t))
		other, _ := g.Open(ampleRun(t))
		serveTo(s, "/v1/responses", `{"model":"m"}`)
		serveTo(other, "/v1/responses", `{"model":"m"}`)
		other.Close()
	}
	if a := strings.Count(strings.Join(asked, ""), "a"); a < 5 || a > 8 {
		t.Errorf("asked %v: not spread", asked)
	}
}

func TestLimitOf(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name    string
		status  int
		header  http.Header
		body    string
		in      time.Duration
		account bool
	}{
		{"seconds", 429, http.Header{"Retry-After": {"7"}}, "", 7 * time.Second, false},
		{"a date", 429, http.Header{"Retry-After": {"Thu, 26 Nov 2026 12:01:00 GMT"}}, "", time.Minute, false},
		{"milliseconds", 429, http.Header{"Retry-After-Ms": {"1500"}, "Retry-After": {"2"}}, "", 1500 * time.Millisecond, false},
		{"OpenAI's spans, of what is used up", 429, http.Header{"X-Ratelimit-Reset-Requests": {"6m0s"}, "X-Ratelimit-Remaining-Requests": {"5"},
			"X-Ratelimit-Reset-Tokens": {"30s"}, "X-Ratelimit-Remaining-Tokens": {"0"}}, "", 30 * time.Second, false},
		{"Anthropic's times", 429, http.Header{"Anthropic-Ratelimit-Input-Tokens-Reset": {"2026-11-26T12:00:30Z"}}, "", 30 * time.Second, false},
		{"Claude's subscription", 429, http.Header{"Anthropic-Ratelimit-Unified-Reset": {fmt.Sprint(now.Add(3 * time.Hour).Unix())},
			"Anthropic-Ratelimit-Unified-Status": {"rejected"}}, "", 3 * time.Hour, true},
		{"ChatGPT's subscription", 429, nil, fmt.Sprintf(`{"error":{"type":"usage_limit_reached","resets_at":%d}}`, now.Add(time.Hour).Unix()), time.Hour, true},
		{"the same, from now", 429, nil, `{"error":{"type":"usage_limit_reached","resets_in_seconds":90}}`, 90 * time.Second, true},
		{"no credit", 429, nil, `{"error":{"code":"insufficient_quota"}}`, cooldownCredit, true},
		{"no credit at Anthropic", 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access"}}`, cooldownCredit, true},
		{"payment", 402, nil, "", cooldownCredit, true},
		{"nothing said", 429, nil, "", cooldownDefault, false},
		{"too far", 429, http.Header{"Retry-After": {"99999999"}}, "", cooldownMost, false},
		{"past", 429, http.Header{"Retry-After": {"Thu, 26 Nov 2020 12:01:00 GMT"}}, "", time.Second, false},
		{"absurd", 429, http.Header{"Retry-After": {"-1e300"}}, `{"error":{"resets_at":1e300}}`, cooldownDefault, false},
	} {
		limited, account, until := limitOf(now, &buffered{status: c.status, header: c.header, body: []byte(c.body)})
		if in := until.Sub(now); !limited || in != c.in || account != c.account {
			t.Errorf("%s: limited %v, in %s, account %v; want in %s, %v", c.name, limited, in, account, c.in, c.account)
		}
	}
	for _, status := range []int{400, 401, 403, 404, 500, 529} {
		if limited, _, _ := limitOf(now, &buffered{status: status, body: []byte(`{"error":{"message":"model: Your credit balance is too low"}}`)}); limited {
			t.Errorf("%d is no limit", status)
		}
	}
}

// TestKeyCommand: a command runs once, and again when the provider refuses what it has printed.
func TestKeyCommand(t *testing.T) {
	good, runs := "first-0123456789", 0
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer "+good {
			w.WriteHeader(401)
			return
		}
		says(plainJSON, ok)(w, req)
	}, func(c *Config, _ *RunConfig) {
		c.RunCommand = func(_ context.Context, command []string) ([]byte, error) {
			if runs++; strings.Join(command, " ") != "pass show key" || runs > 3 {
				return nil, errors.New("exit status 1")
			}
			return []byte(good + "\n"), nil
		}
		c.Providers[0].Keys = []credential.Key{{Name: "pass", Command: []string{"pass", "show", "key"}}}
	})
	want := func(status, ran int) {
		t.Helper()
		if got := r.post("/v1/responses", `{"model":"m"}`); got.status != status || runs != ran {
			t.Fatalf("answered %d %s after %d runs, want %d after %d", got.status, got.body, runs, status, ran)
		}
	}
	want(200, 1)
	want(200, 1)
	good = "second-0123456789"
	want(200, 2)
	want(200, 2)
	good = "third-0123456789"
	runs = 3 // the command fails from now on
	want(401, 4)
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(realKey + "\n")
	r := newRig(t, says(plainJSON, ok), func(c *Config, _ *RunConfig) { c.Providers[0].Keys = []credential.Key{{Name: "K", File: path}} })
	if got := r.post("/v1/responses", `{"model":"m"}`); got.status != 200 || r.upstream().header.Get("Authorization") != "Bearer "+realKey {
		t.Fatalf("%d, %v", got.status, r.upstream().header)
	}
	write("two\nlines")
	got := r.post("/v1/responses", `{"model":"m"}`)
	if got.status != 401 || !strings.Contains(got.body, "its key K") || strings.Contains(got.body, path) {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

// TestRates: requests beyond a rate wait, by provider and by model, of whatever run; meanwhile the session says so. The end
// of a run ends its waiting.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		var limited []Limited
		g, _ := withKeys(t, []string{"a"}, accounts{"a": fine}, &asked, &limited)
		gate := permit.NewGate(permit.Limits{MaxConcurrent: 2, TTL: time.Hour, RequestRates: map[string]permit.RequestRate{"openai": {PerMinute: 60}, "openai/m": {PerMinute: 30}}})
		var runs []*Session
		for _, id := range []job.ID{"a", "b"} {
			s, err := g.Open(RunConfig{Permit: begin(t, gate, permit.Request{Job: id, Attempt: 1, Limits: ample}), RatedAs: "openai"})
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, s)
		}
		start := time.Now()
		for i := range 32 {
			serveTo(runs[i%2], "/v1/responses", `{"model":"m"}`)
		}
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("32 requests at 30 a minute took %s, want 4s", took)
		}
		for range 28 + 4 + 3 {
			serveTo(runs[0], "/v1/responses", `{"model":"n"}`)
		}
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("67 requests at 60 a minute took %s, want 7s", took)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			defer func() { _ = recover() }() // the handler ends without an answer
			serveTo(runs[0], "/v1/responses", `{"model":"n"}`)
		})
		synctest.Wait()
		if !runs[0].Waiting() || runs[1].Waiting() {
			t.Error("the session does not say that a request waits")
		}
		runs[0].Close()
		waiting.Wait()
		if took := time.Since(start); took != 7*time.Second || runs[0].Waiting() {
			t.Errorf("a run that ended after %s waits still", took)
		}
	})
}
