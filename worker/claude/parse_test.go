package claude

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

// TestUsageSum checks on every recording that the increments add up to what
// the program's own result says: nothing twice, nothing lost.
func TestUsageSum(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		s := testSession(t)
		var sum job.Usage
		var end *line
		for l := range bytes.Lines(readFile(t, file)) {
			for _, e := range s.Event(l) {
				if e.Kind == job.EventUsage {
					sum = sum.Add(*e.Usage)
				}
			}
			var parsed line
			if decode(l, &parsed) && parsed.Type == "result" {
				end = &parsed
			}
		}
		if end == nil {
			continue
		}
		checked++
		var want job.Usage
		for _, m := range end.ModelUsage {
			want = want.Add(tokens{m.Input, m.CacheRead, m.CacheWrite, m.Output}.usage())
		}
		if sum != want {
			t.Errorf("%s: sum %+v, result %+v", file, sum, want)
		}
		if got := s.Result(worker.Exit{Stopped: true}).CostUSD; got == nil || *got != *end.CostUSD {
			t.Errorf("%s: cost %v, want %v", file, got, *end.CostUSD)
		}
	}
	if checked < 8 {
		t.Errorf("only %d recordings have a result", checked)
	}
}

// TestHugeLine parses an output of 16 MB: cut, and in time that a test can wait for.
func TestHugeLine(t *testing.T) {
	s := testSession(t)
	s.Event([]byte(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"yes"}}]}}`))
	content := `[{"type":"text","text":"` + strings.Repeat("y\\n", 8<<20) + `"}]`
	events := s.Event([]byte(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":` + content + `}]}}`))
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
		`{"type":"result"}`:    ``,
		`{"type":"assistant"}`: ``,
		`{"type":"user","message":{"content":"plain"}}`:                                                      ``,
		`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"nobody"}]}}`:              ``,
		`{"type":"assistant","message":{"id":"m","content":"plain","usage":{"input_tokens":"many"}}}`:        `step text`,
		`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","name":"Glob","input":{}}]}}`: `step tool`,
		`{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":1795290000}}`:           ``,
		`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected"}}`:                                `warning`,
		`{"type":"system","subtype":"api_retry","attempt":1,"error":"rate_limit","error_status":429}`:        `error`,
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

// TestResults covers ends that no recording has.
func TestResults(t *testing.T) {
	const success = `{"type":"result","subtype":"success","is_error":false,"result":"done"}`
	failed := func(message string) string {
		data, _ := json.Marshal(map[string]any{"type": "result", "subtype": "success", "is_error": true, "result": message})
		return string(data)
	}
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		name  string
		lines []string
		exit  worker.Exit
		class job.ErrorClass
		says  string
		at    time.Time
	}{
		{name: "done", lines: []string{success}},
		{name: "done, but it failed", lines: []string{success}, exit: worker.Exit{Code: 3}, class: job.Crash, says: "exit code 3"},
		{name: "done, but it was killed", lines: []string{success}, exit: worker.Exit{Code: -1, Signal: "killed"}, class: job.Crash, says: "killed"},
		{name: "silence", class: job.Crash, says: "no result"},
		{name: "unknown option", exit: worker.Exit{Code: 1, Stderr: "error: unknown option '--strict-mcp-config'\n"}, class: job.Config, says: "unknown option"},
		{name: "words that nobody knows", exit: worker.Exit{Code: 1, Stderr: "odd\n"}, class: job.Crash, says: "odd"},
		{name: "too many turns", lines: []string{`{"type":"result","subtype":"error_max_turns","is_error":true}`}, exit: worker.Exit{Code: 1}, class: job.Budget, says: "error_max_turns"},
		{name: "no answer of that form", lines: []string{`{"type":"result","subtype":"error_max_structured_output_retries","is_error":true}`}, exit: worker.Exit{Code: 1},
			class: job.InvalidOutput, says: "structured"},
		{name: "no login", lines: []string{failed("Not logged in · Please run /login")}, exit: worker.Exit{Code: 1}, class: job.Auth, says: "Not logged in"},
		{name: "limit, old words", lines: []string{failed("Claude AI usage limit reached|1795290000")}, exit: worker.Exit{Code: 1}, class: job.RateLimit, says: "limit",
			at: time.Unix(1795290000, 0)},
		{name: "limit, a clock", lines: []string{failed("You've hit your session limit · resets 3:40pm (Europe/Berlin)")}, exit: worker.Exit{Code: 1}, class: job.RateLimit, says: "limit",
			at: at("2026-11-21T14:40:00Z")},
		{name: "limit, tomorrow", lines: []string{failed("5-hour limit reached ∙ resets 1am (UTC)")}, exit: worker.Exit{Code: 1}, class: job.RateLimit, says: "limit",
			at: at("2026-11-22T01:00:00Z")},
		{name: "limit, a date", lines: []string{failed("You've hit your weekly limit · resets Jan 2, 12am (UTC)")}, exit: worker.Exit{Code: 1}, class: job.RateLimit, says: "limit",
			at: at("2027-01-02T00:00:00Z")},
		{name: "limit, told before", lines: []string{`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1795290000}}`,
			failed("You've hit your limit")}, exit: worker.Exit{Code: 1}, class: job.RateLimit, says: "limit", at: time.Unix(1795290000, 0)},
	} {
		s := testSession(t)
		for _, l := range c.lines {
			s.Event([]byte(l))
		}
		r := s.Result(c.exit)
		if r.Class != c.class || !strings.Contains(r.Message, c.says) || (c.class == job.NoError) != (r.Message == "") {
			t.Errorf("%s: %+v", c.name, r)
		}
		var got time.Time
		if r.RetryAt != nil {
			got = r.RetryAt.At
		}
		if !got.Equal(c.at) {
			t.Errorf("%s: retry at %s, want %s", c.name, got, c.at)
		}
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
		f.Add(data, "resets Nov 25, 3pm (UTC)", 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, stderr string, code int) {
		s := testSession(t)
		for l := range bytes.Lines(data) {
			for _, e := range s.Event(bytes.TrimSuffix(l, []byte("\n"))) {
				if len(e.Text) > job.MaxEventText {
					t.Fatalf("%d bytes of text", len(e.Text))
				}
				if e.Usage != nil && e.Usage.CostUSD < 0 {
					t.Fatalf("usage %+v", e.Usage)
				}
				if _, err := json.Marshal(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r := s.Result(worker.Exit{Code: code, Stderr: stderr}); r.Class == job.NoError && code != 0 {
			t.Fatalf("success with exit code %d", code)
		}
		if r, decided := s.Verdict(); decided && (r.Class == job.NoError || r.Message == "") {
			t.Fatalf("verdict %+v", r)
		}
		retryAfter(stderr, testNow)
	})
}
