package opencode

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// TestHugeLine parses an output of 16 MB: cut, and in time that a test can wait for.
func TestHugeLine(t *testing.T) {
	l := `{"type":"tool_use","part":{"tool":"bash","state":{"status":"completed","output":"` + strings.Repeat("y\\n", 8<<20) + `","metadata":{"exit":0}}}}`
	events := testSession(t).Event([]byte(l))
	if len(events) != 1 || events[0].Kind != job.EventCommand || len(events[0].Text) > job.MaxEventText || events[0].Truncated < 15<<20 {
		t.Fatalf("%d events", len(events))
	}
}

// TestOddLines feeds what nobody promised.
func TestOddLines(t *testing.T) {
	for line, want := range map[string]string{
		``:                     `log`,
		`hello`:                `log`,
		`{"type":`:             `log`,
		`[1,2]`:                `log`,
		`{"type":5}`:           `log`,
		`{"type":"new_thing"}`: ``,
		`{"type":"error"}`:     `error`,
		`{"type":"tool_use"}`:  `tool`,
		`{"type":"step_finish","part":{"reason":"unknown"}}`:                                     `step retry`,
		`{"type":"step_finish","sessionID":"s","part":{"tokens":{"input":"many","output":2}}}`:   `session step usage`,
		`{"type":"tool_use","part":{"tool":"bash","state":{"status":"error","error":"killed"}}}`: `command`,
	} {
		var kinds []string
		for _, e := range testSession(t).Event([]byte(line)) {
			kinds = append(kinds, string(e.Kind))
		}
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// TestUsage covers how tokens and cost are read.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		tokens string
		cost   string
		want   job.Usage
	}{
		{`{"total":120,"input":90,"output":20,"reasoning":0,"cache":{"read":10,"write":0}}`, `0`, job.Usage{InputTokens: 100, CachedTokens: 10, OutputTokens: 20}},
		{`{"total":120,"input":90,"output":20,"reasoning":0,"cache":{"read":5,"write":5}}`, `0.5`,
			job.Usage{InputTokens: 100, CachedTokens: 5, CacheWriteTokens: 5, OutputTokens: 20, CostUSD: 0.5, CostKnown: true}},
		{`{"total":150,"input":100,"output":20,"reasoning":30,"cache":{"read":0,"write":0}}`, `0`, job.Usage{InputTokens: 100, OutputTokens: 50, ReasoningTokens: 30}},
		{`{"input":100,"output":50,"reasoning":30,"cache":{"read":0,"write":0}}`, `0`, job.Usage{InputTokens: 100, OutputTokens: 50, ReasoningTokens: 30}},
	} {
		events := testSession(t).Event([]byte(`{"type":"step_finish","part":{"reason":"stop","tokens":` + c.tokens + `,"cost":` + c.cost + `}}`))
		if len(events) != 2 || events[1].Usage == nil || *events[1].Usage != c.want {
			t.Errorf("%s: %+v", c.tokens, events)
		}
	}
}

// TestResults covers ends that no recording has.
func TestResults(t *testing.T) {
	const begun = `{"type":"step_start","sessionID":"s"}`
	finish := func(reason string) string { return `{"type":"step_finish","part":{"reason":"` + reason + `"}}` }
	failed := func(name, data string) string {
		return `{"type":"error","error":{"name":"` + name + `","data":{` + data + `}}}`
	}
	date := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		lines []string
		exit  worker.Exit
		class job.ErrorClass
		says  string
		after time.Duration
		at    time.Time
	}{
		{name: "done", lines: []string{begun, finish("stop")}},
		{name: "done after an error that healed", lines: []string{failed("APIError", `"message":"x"`), begun, finish("stop")}},
		{name: "done, but it failed", lines: []string{begun, finish("stop")}, exit: worker.Exit{Code: 3}, class: job.Crash, says: "exit code 3"},
		{name: "done, but it was killed", lines: []string{begun, finish("stop")}, exit: worker.Exit{Code: -1, Signal: "killed"}, class: job.Crash, says: "killed"},
		{name: "silence", class: job.Crash, says: "before its answer"},
		{name: "ended between steps", lines: []string{begun, finish("tool-calls")}, class: job.Crash, says: "before its answer"},
		{name: "ended in a step", lines: []string{begun, finish("stop"), begun}, class: job.Crash, says: "before its answer"},
		{name: "broken off", lines: []string{begun, finish("unknown")}, class: job.Server, says: "broke off"},
		{name: "too long an answer", lines: []string{begun, finish("length")}, class: job.ResourceExhausted, says: "output limit"},
		{name: "error, then exit 0", lines: []string{failed("UnknownError", `"message":"odd"`)}, class: job.Unknown, says: "odd"},
		{name: "no login", lines: []string{failed("ProviderAuthError", `"message":"no key"`)}, exit: worker.Exit{Code: 1}, class: job.Auth, says: "no key"},
		{name: "no credit", lines: []string{failed("APIError", `"message":"Your credit balance is too low","statusCode":400`)}, exit: worker.Exit{Code: 1}, class: job.ResourceExhausted, says: "credit"},
		{name: "no network", lines: []string{failed("APIError", `"message":"Cannot connect to API: Unable to connect. Is the computer able to access the url?"`)}, exit: worker.Exit{Code: 1},
			class: job.Network, says: "connect"},
		{name: "rate limit, seconds", lines: []string{failed("APIError", `"message":"x","statusCode":429,"responseHeaders":{"Retry-After":"1.5"}`)}, exit: worker.Exit{Code: 1},
			class: job.RateLimit, says: "429", after: 1500 * time.Millisecond},
		{name: "rate limit, milliseconds", lines: []string{failed("APIError", `"message":"x","statusCode":429,"responseHeaders":{"retry-after-ms":"250","retry-after":"1"}`)}, exit: worker.Exit{Code: 1},
			class: job.RateLimit, says: "429", after: 250 * time.Millisecond},
		{name: "rate limit, a date", lines: []string{failed("APIError", `"message":"x","statusCode":429,"responseHeaders":{"retry-after":"Sat, 21 Nov 2026 09:00:00 GMT"}`)}, exit: worker.Exit{Code: 1},
			class: job.RateLimit, says: "429", at: date},
		{name: "rate limit, nonsense", lines: []string{failed("APIError", `"message":"x","statusCode":429,"responseHeaders":{"retry-after":"1e300"}`)}, exit: worker.Exit{Code: 1}, class: job.RateLimit, says: "429"},
		{name: "lost session", exit: worker.Exit{Code: 1, Stderr: "\x1b[91m\x1b[1mError: \x1b[0mSession not found\n"}, class: job.Config, says: ": Error: Session not found"},
		{name: "unknown option", exit: worker.Exit{Code: 1, Stderr: "opencode run [message..]\n\nrun opencode with a message\n\nOptions:\n"}, class: job.Config, says: "Options"},
		{name: "words that nobody knows", exit: worker.Exit{Code: 1, Stderr: "odd\n"}, class: job.Unknown, says: "odd"},
	} {
		s := testSession(t)
		for _, l := range c.lines {
			s.Event([]byte(l))
		}
		r := s.Result(c.exit)
		if r.Class != c.class || !strings.Contains(r.Message, c.says) || (c.class == job.NoError) != (r.Message == "") {
			t.Errorf("%s: %+v", c.name, r)
		}
		var got worker.RetryAfter
		if r.RetryAt != nil {
			got = *r.RetryAt
		}
		if got.After != c.after || !got.At.Equal(c.at) {
			t.Errorf("%s: retry %+v", c.name, got)
		}
	}
}

// TestPlainJSON covers the user's own configuration files.
func TestPlainJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": "// no comment, /* nor */ this", "b": [1, 2,], }`:  `{"a":"// no comment, /* nor */ this","b":[1,2]}`,
		"{// c\n\"a\": 1, // c\n/* c, */ \"b\": \"\\\"//\"/* */}": `{"a":1,"b":"\"//"}`,
		`{"a": [ "x" , // last` + "\n" + ` ] , }`:                 `{"a":["x"]}`,
	} {
		var v any
		if err := json.Unmarshal(plainJSON([]byte(in)), &v); err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got, _ := json.Marshal(v); string(got) != want {
			t.Errorf("%s: %s", in, got)
		}
	}
	for _, in := range []string{`{"a`, `{/*`, `{"a\`, `//`, `/`, `,`, `]`} {
		plainJSON([]byte(in)) // must not panic
	}
}

// FuzzEvents feeds any bytes, line by line: no panic, no event that is too large.
func FuzzEvents(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, failedLine("odd"), 1)
		f.Add(data, "\x1b[91mError: \x1b[0mSession not found", 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, stderr string, code int) {
		s := testSession(t)
		for l := range bytes.Lines(data) {
			for _, e := range s.Event(bytes.TrimSuffix(l, []byte("\n"))) {
				if len(e.Text) > job.MaxEventText {
					t.Fatalf("%d bytes of text", len(e.Text))
				}
				if _, err := json.Marshal(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		for l := range strings.Lines(stderr) {
			for _, e := range s.ErrorLine([]byte(l)) {
				if _, err := json.Marshal(e); err != nil || len(e.Text) > job.MaxEventText {
					t.Fatalf("%d bytes of text, %v", len(e.Text), err)
				}
			}
		}
		if r, decided := s.Verdict(); decided && (r.Class == job.NoError || r.Message == "") {
			t.Fatalf("verdict %+v", r)
		}
		if r := s.Result(worker.Exit{Code: code, Stderr: stderr}); r.Class == job.NoError && code != 0 {
			t.Fatalf("success with exit code %d", code)
		}
		plainJSON(data)
	})
}
