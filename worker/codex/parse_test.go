package codex

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

func testSession(t *testing.T) worker.Session {
	t.Helper()
	tk := &worker.Task{Dir: "/workspace"}
	return newSession(tk, grantOf(tk), nil)
}

func itemLine(method, item string) string {
	return `{"method":"item/` + method + `","params":{"item":` + item + `}}`
}

func turnFailed(message string) string {
	return fmt.Sprintf(`{"method":"turn/completed","params":{"turn":{"id":"1","status":"failed","error":{"message":%q}}}}`, message)
}

// TestHugeLine parses an output of 16 MB: cut, and in time that a test can wait for.
func TestHugeLine(t *testing.T) {
	output := strings.Repeat("y\\n", 8<<20)
	l := itemLine("completed", `{"id":"i","type":"commandExecution","command":"yes","aggregatedOutput":"`+output+`","exitCode":0}`)
	events := workertest.Play(testSession(t)).Event([]byte(l))
	if len(events) != 2 || events[0].Kind != job.EventCommand || len(events[0].Text) > job.MaxEventText || events[0].Truncated < 15<<20 {
		t.Fatalf("%d events, %d bytes, %d cut", len(events), len(events[0].Text), events[0].Truncated)
	}
	if events := workertest.Play(testSession(t)).Event([]byte(l[:len(l)-1])); len(events) != 1 || events[0].Kind != job.EventLog || len(events[0].Text) > job.MaxEventText {
		t.Fatalf("a line that is cut off: %d events", len(events))
	}
}

// TestOddLines feeds what nobody promised.
func TestOddLines(t *testing.T) {
	workertest.OddLines(t, testSession, map[string]string{
		``:                                       `log`,
		`hello`:                                  `log`,
		`{"method":`:                             `log`,
		`[1,2]`:                                  `log`,
		`{"method":5}`:                           `log`,
		`{"method":"new/thing"}`:                 ``,
		`{"id":7,"method":"new/ask"}`:            ``,
		`{"id":7,"result":{}}`:                   ``,
		`{"id":1,"error":{"message":"no"}}`:      `error`,
		`{"id":2,"result":{}}`:                   `error`,
		`{"method":"turn/completed"}`:            `error`,
		`{"method":"turn/started"}`:              ``,
		`{"method":"thread/tokenUsage/updated"}`: ``,
		`{"method":"thread/tokenUsage/updated","params":{"tokenUsage":{"total":{"inputTokens":-5}}}}`:                         ``,
		`{"method":"error","params":{"willRetry":true,"error":{"message":"Reconnecting... 2/5 (x)"}}}`:                        `retry`,
		`{"method":"deprecationNotice","params":{"summary":"old"}}`:                                                           `warning`,
		itemLine("completed", `{"type":"newItem"}`):                                                                           `tool step`,
		itemLine("completed", `{"type":"agentMessage","text":"x","command":["a"]}`):                                           `text step`,
		itemLine("completed", `{"type":"commandExecution","aggregatedOutput":"bwrap: No permissions","exitCode":1}`):          `command step`,
		itemLine("completed", `{"type":"commandExecution","status":"declined","command":"x"}`):                                `warning step`,
		itemLine("completed", `{"type":"fileChange","changes":[{"path":"a","kind":{"type":"delete"}}],"status":"failed"}`):    `tool step`,
		itemLine("completed", `{"type":"fileChange","changes":[{"path":"a","kind":{"type":"delete"}}],"status":"completed"}`): `file step`,
		itemLine("completed", `{"type":"reasoning","content":["x"],"summary":["y"]}`):                                         ``,
	})
}

// TestClassify holds messages that no recording has.
func TestClassify(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 11, 21, 20, 0, 0, 0, zone)
	for _, c := range []struct {
		message string
		class   job.ErrorClass
		after   time.Duration
		at      time.Time
	}{
		{message: "unexpected status 403 Forbidden: forbidden, url: http://x/v1/responses", class: job.Auth},
		{message: "unexpected status 503 Service Unavailable: overloaded, url: http://x", class: job.Server},
		{message: "unexpected status 404 Not Found: nope, url: http://x", class: job.Config},
		{message: "Your access token could not be refreshed. Please log out and sign in again.", class: job.Auth},
		{message: "Missing environment variable: `GATE_KEY`.", class: job.Auth},
		{message: "rate limit exceeded: Please try again in 1.5s.", class: job.RateLimit, after: 1500 * time.Millisecond},
		{message: "rate limit exceeded: Please try again in 6m0s.", class: job.RateLimit, after: 6 * time.Minute},
		{message: "Rate limit reached. Please try again in 850ms.", class: job.RateLimit, after: 850 * time.Millisecond},
		{message: "You've hit your usage limit. Try again in 3 days 4 hours 2 minutes.", class: job.RateLimit, after: 76*time.Hour + 2*time.Minute},
		{message: "You’ve hit your usage limit. Visit x or try again at 9:40 PM.", class: job.RateLimit, at: time.Date(2026, 11, 21, 21, 40, 0, 0, zone)},
		{message: "You’ve hit your usage limit. Visit x or try again at 7:40 PM.", class: job.RateLimit, at: time.Date(2026, 11, 22, 19, 40, 0, 0, zone)},
		{message: "You've hit your usage limit or try again at Nov 25th, 2026 7:40 AM.", class: job.RateLimit, at: time.Date(2026, 11, 25, 7, 40, 0, 0, zone)},
		{message: "You've hit your usage limit. Try again later.", class: job.RateLimit},
		{message: "Selected model is at capacity. Please try a different model.", class: job.Server},
		{message: `{"type":"error","error":{"type":"invalid_request_error","message":"Unsupported value"}}`, class: job.Config},
		{message: "workspace routing discovery failed", class: job.Network},
		{message: "something else", class: job.Unknown},
	} {
		class, _, retry := classify(c.message, now)
		if class != c.class {
			t.Errorf("%s: %s, want %s", c.message, class, c.class)
		}
		workertest.CheckRetry(t, c.message, retry, c.after, c.at)
	}
}

// TestResults covers ends that the stream does not explain.
func TestResults(t *testing.T) {
	const begun, done = `{"method":"turn/started","params":{"turn":{"id":"1"}}}`, `{"method":"turn/completed","params":{"turn":{"id":"1","status":"completed"}}}`
	const interrupted = `{"method":"turn/completed","params":{"turn":{"id":"1","status":"interrupted"}}}`
	noSandbox := itemLine("completed", `{"type":"commandExecution","aggregatedOutput":"bwrap: Creating new namespace failed","exitCode":1}`)
	workertest.Ends(t, testSession, []workertest.End{
		{Name: "done", Lines: []string{begun, done}},
		{Name: "done, but it failed", Lines: []string{begun, done}, Exit: worker.Exit{Code: 3}, Class: job.Crash, Says: "exit code 3"},
		{Name: "done, but it was killed", Lines: []string{begun, done}, Exit: worker.Exit{Code: -1, Signal: "killed"}, Class: job.Crash, Says: "killed"},
		{Name: "done, but nothing could run", Lines: []string{begun, noSandbox, done}, Class: job.Config, Says: "sandbox"},
		{Name: "done, after something could not run", Lines: []string{begun, noSandbox, itemLine("completed", `{"type":"commandExecution","exitCode":0}`), done}},
		{Name: "silence", Class: job.Crash, Says: "without finishing"},
		{Name: "interrupted by nobody", Lines: []string{begun, interrupted}, Class: job.Crash, Says: "without finishing"},
		{Name: "failed, then exit 0", Lines: []string{begun, turnFailed("odd")}, Class: job.Unknown, Says: "odd"},
		{Name: "lost thread", Lines: []string{`{"id":2,"error":{"code":-32600,"message":"no rollout found for thread id x"}}`}, Class: job.Config, Says: "no rollout found"},
		{Name: "unknown command", Exit: worker.Exit{Code: 2, Stderr: "error: unrecognized subcommand 'app-server'\n\nUsage: codex\n"}, Class: job.Config, Says: "unrecognized"},
		{Name: "panic", Exit: worker.Exit{Code: 101, Stderr: "thread 'main' panicked at src/main.rs:1:1:\nboom\n"}, Class: job.Crash, Says: "panicked"},
		{Name: "words that nobody knows", Exit: worker.Exit{Code: 1, Stderr: "WARNING: proceeding\nfirst\nsecond\n"}, Class: job.Unknown, Says: "first\nsecond"},
		{Name: "a full disk", Exit: worker.Exit{Code: 1, Stderr: "Error: No space left on device (os error 28)\n"}, Class: job.ResourceExhausted, Says: "No space"},
	})
}

// TestOldVersion: a version whose protocol is not known is refused with the one that is needed.
func TestOldVersion(t *testing.T) {
	for agent, old := range map[string]bool{"agentsched/0.168.9 (x)": true, "agentsched/0.169.0 (x)": false, "agentsched/0.170.0-alpha.1 (x)": false, "agentsched/1.0.0": false, "odd": false} {
		s := workertest.Play(testSession(t))
		s.Step(workertest.Now, worker.Started{})
		events := s.Event([]byte(`{"id":1,"result":{"userAgent":"` + agent + `"}}`))
		if newer := agent == "agentsched/0.170.0-alpha.1 (x)" || agent == "agentsched/1.0.0"; newer != (len(events) == 1 && strings.Contains(events[0].Text, "newer than 0.169.0")) {
			t.Errorf("%s: %+v", agent, events)
		}
		r, decided := s.Verdict()
		if decided != old || old && (r.Class != job.Config || !strings.Contains(r.Message, "0.169") || r.Hint == "") {
			t.Errorf("%s: %+v", agent, r)
		}
	}
}

// FuzzEvents feeds any bytes, line by line: no panic, no event that is too large.
func FuzzEvents(f *testing.F) {
	files, err := filepath.Glob("testdata/*.transcript")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		_, entries := workertest.ReadTranscript(f, workertest.Read(f, file))
		var lines []string
		for _, e := range entries {
			if e.Mark == "<" {
				lines = append(lines, e.What)
			}
		}
		f.Add([]byte(strings.Join(lines, "\n")), answerLine("/v1/responses", "429 Too Many Requests", `"retry-after": "7", "x-ratelimit-reset": "1795290000", `), 1)
	}
	workertest.FuzzEvents(f, testSession, nil)
}
