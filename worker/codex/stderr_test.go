package codex

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// answerLine is what Codex logs of a server's answer.
func answerLine(path, status, headers string) string {
	return `2026-11-21T08:46:20.712734Z DEBUG codex_http_client::client: Request completed method=POST url=http://127.0.0.1:8080` + path +
		` status=` + status + ` headers={"content-type": "application/json", ` + headers + `"set-cookie": "secret=1; a=\"b\""} version=HTTP/1.1`
}

// TestRetryHeaders covers when a 429 says to come back.
func TestRetryHeaders(t *testing.T) {
	const limited = "429 Too Many Requests"
	for _, c := range []struct {
		name, headers string
		after         time.Duration
		at            time.Time
	}{
		{name: "none"},
		{name: "seconds", headers: `"retry-after": "7", `, after: 7 * time.Second},
		{name: "milliseconds", headers: `"retry-after": "1", "retry-after-ms": "250", `, after: 250 * time.Millisecond},
		{name: "a date", headers: `"retry-after": "Sat, 21 Nov 2026 09:00:00 GMT", `, at: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)},
		{name: "a date that is over", headers: `"retry-after": "Sat, 21 Nov 2026 07:00:00 GMT", `},
		{name: "nonsense", headers: `"retry-after": "1e300", `},
		{name: "not a number", headers: `"retry-after": "NaN", `},
		{name: "before the resets", headers: `"x-ratelimit-reset-tokens": "6m0s", "retry-after": "7", `, after: 7 * time.Second},
		{name: "what is used up", headers: `"x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "90", "x-ratelimit-reset-requests": "850ms", "x-ratelimit-reset-tokens": "6m0s", `,
			after: 850 * time.Millisecond},
		{name: "the latest reset", headers: `"x-ratelimit-reset-requests": "850ms", "x-ratelimit-reset-tokens": "6m0s", `, after: 6 * time.Minute},
		{name: "a reset in seconds", headers: `"x-ratelimit-reset": "12.5", `, after: 12500 * time.Millisecond},
		{name: "a reset since 1970", headers: `"x-ratelimit-reset": "` + fmt.Sprint(workertest.Now.Unix()+90) + `", `, after: 90 * time.Second},
		{name: "a reset since 1970 in milliseconds", headers: `"x-ratelimit-reset": "` + fmt.Sprint(workertest.Now.UnixMilli()+90) + `", `, after: 90 * time.Millisecond},
		{name: "a reset that is over", headers: `"x-ratelimit-reset": "1795290", "x-ratelimit-reset-tokens": "-5s", `, after: 1795290 * time.Second},
		{name: "only what is over", headers: `"x-ratelimit-reset": "999999999", `},
		{name: "a reset that is nonsense", headers: `"x-ratelimit-reset": "soon", `},
	} {
		s := workertest.Play(testSession(t))
		if events := s.ErrorLine([]byte(answerLine("/v1/responses", limited, c.headers))); events != nil {
			t.Errorf("%s: events %+v", c.name, events)
		}
		s.Event([]byte(turnFailed("exceeded retry limit, last status: 429 Too Many Requests")))
		r := s.Result(worker.Exit{Code: 1})
		if r.Class != job.RateLimit {
			t.Errorf("%s: %s", c.name, r.Class)
		}
		workertest.CheckRetry(t, c.name, r.RetryAt, c.after, c.at)
	}
}

// TestLastAnswer covers which answers decide what a failure is called.
func TestLastAnswer(t *testing.T) {
	const responses, retry = "/v1/responses", `"retry-after": "7", `
	const unreachable = `2026-11-21T08:46:20.712734Z DEBUG codex_http_client::client: Request failed method=POST url=http://127.0.0.1:8080/v1/responses is_timeout=false is_connect=true`
	const vague = "We’re currently experiencing high demand, which may cause temporary errors."
	for _, c := range []struct {
		name    string
		lines   []string
		message string
		class   job.ErrorClass
		says    string
		retry   bool
	}{
		{name: "a vague message", lines: []string{answerLine(responses, "500 Internal Server Error", "")}, message: vague, class: job.Server, says: "(status 500)"},
		{name: "a vague message about a limit", lines: []string{answerLine(responses, "429 Too Many Requests", retry)}, message: vague, class: job.RateLimit, says: "(status 429)", retry: true},
		{name: "an unknown message", lines: []string{answerLine(responses, "401 Unauthorized", "")}, message: "odd", class: job.Auth, says: "odd (status 401)"},
		{name: "in colours", lines: []string{"\x1b[2m" + strings.Replace(answerLine(responses, "503 Service Unavailable", ""), " DEBUG ", "\x1b[0m \x1b[34mDEBUG\x1b[0m ", 1)}, message: "odd", class: job.Server, says: "503"},
		{name: "in a span", lines: []string{strings.Replace(answerLine(responses, "503 Service Unavailable", ""), "DEBUG ", "DEBUG session_loop{thread_id=1}:turn{model=m}: ", 1)}, message: "odd", class: job.Server, says: "503"},
		{name: "words that say more", lines: []string{answerLine(responses, "429 Too Many Requests", retry)}, message: "Quota exceeded. Check your plan and billing details.", class: job.ResourceExhausted, says: "429"},
		{name: "words that say when", lines: []string{answerLine(responses, "429 Too Many Requests", retry)}, message: "usage limit. Try again in 7s.", class: job.RateLimit, says: "limit", retry: true},
		{name: "healed since", lines: []string{answerLine(responses, "429 Too Many Requests", retry), answerLine(responses, "200 OK", "")}, message: "odd", class: job.Unknown, says: "odd"},
		{name: "unreachable since", lines: []string{answerLine(responses, "429 Too Many Requests", retry), unreachable}, message: "odd", class: job.Unknown, says: "odd"},
		{name: "another request", lines: []string{answerLine("/v1/models", "404 Not Found", "")}, message: "odd", class: job.Unknown, says: "odd"},
		{name: "another method", lines: []string{strings.Replace(answerLine(responses, "404 Not Found", ""), "POST", "GET", 1)}, message: "odd", class: job.Unknown, says: "odd"},
		{name: "another module's words", lines: []string{`2026-11-21T08:46:20Z ERROR codex_core: said "` + answerLine(responses, "500 x", "") + `"`}, message: "odd", class: job.Unknown, says: "odd"},
	} {
		s := workertest.Play(testSession(t))
		for _, l := range c.lines {
			s.ErrorLine([]byte(l))
		}
		s.Event([]byte(turnFailed(c.message)))
		r := s.Result(worker.Exit{Code: 1, Stderr: strings.Join(c.lines, "\n")})
		if r.Class != c.class || !strings.Contains(r.Message, c.says) || (r.RetryAt != nil) != c.retry || strings.Contains(r.Message, "secret") {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// TestErrorLine covers what becomes an event, and that what does is bounded.
func TestErrorLine(t *testing.T) {
	s := workertest.Play(testSession(t))
	for line, want := range map[string]string{
		"":                                   "",
		" \t":                                "",
		"\x1b[31mWARNING:\x1b[0m proceeding": "WARNING: proceeding",
		"no UTF-8: \xff":                     "no UTF-8: \uFFFD",
		answerLine("/v1/responses", "200 OK", ""): "",
		answerLine("/v1/models", "200 OK", ""):    "",
	} {
		text := ""
		for _, e := range s.ErrorLine([]byte(line)) {
			text += e.Text
		}
		if text != want {
			t.Errorf("%q: %q, want %q", line, text, want)
		}
	}
	if e := workertest.Play(testSession(t)).ErrorLine([]byte(strings.Repeat("x", 1<<20)))[0]; len(e.Text) > job.MaxEventText || e.Truncated == 0 {
		t.Errorf("a long line: %d bytes", len(e.Text))
	}
}

// TestExplanation checks that no header gets into a message, not even of a
// line whose start was cut off.
func TestExplanation(t *testing.T) {
	line := answerLine("/v1/responses", "401 Unauthorized", "")
	if got := explanation("first\n" + line + "\nsecond\n"); got != "first\nsecond" {
		t.Errorf("%q", got)
	}
	tail := line[100:] + "\nlast words\n"
	tail += strings.Repeat(" \n", (maxStderr-len(tail))/2+1)
	if got := explanation(tail); got != "last words" {
		t.Errorf("%q", got)
	}
}
