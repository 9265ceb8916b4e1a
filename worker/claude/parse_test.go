package claude

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
	"github.com/agentsched/agentsched/worker/workertest"
)

// TestUsageSum checks on every recording that the increments add up to what
// the program's own result says: nothing twice, nothing lost.
func TestUsageSum(t *testing.T) {
	files, err := filepath.Glob("testdata/*.[jt]*l*") // one-way runs, and conversations
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		s := workertest.Play(testSession(t))
		var sum job.Usage
		var end *line
		for l := range bytes.Lines(workertest.Read(t, file)) {
			l = bytes.TrimPrefix(l, []byte("< "))
			for _, e := range s.Event(l) {
				if e.Kind == job.EventUsage {
					sum = sum.Add(*e.Usage)
				}
			}
			var parsed line
			if agentcli.Decode(l, &parsed) && parsed.Type == "result" {
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
	if checked < 20 {
		t.Errorf("only %d recordings have a result", checked)
	}
}

// TestHugeLine parses an output of 16 MB: cut, and in time that a test can wait for.
func TestHugeLine(t *testing.T) {
	s := workertest.Play(testSession(t))
	s.Event([]byte(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"yes"}}]}}`))
	content := `[{"type":"text","text":"` + strings.Repeat("y\\n", 8<<20) + `"}]`
	events := s.Event([]byte(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":` + content + `}]}}`))
	if len(events) != 1 || events[0].Kind != job.EventCommand || len(events[0].Text) > job.MaxEventText || events[0].Truncated < 15<<20 {
		t.Fatalf("%d events", len(events))
	}
}

// TestOddLines feeds what nobody promised.
func TestOddLines(t *testing.T) {
	workertest.OddLines(t, testSession, map[string]string{
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
	})
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
	workertest.Ends(t, testSession, []workertest.End{
		{Name: "done", Lines: []string{success}},
		{Name: "done, but it failed", Lines: []string{success}, Exit: worker.Exit{Code: 3}, Class: job.Crash, Says: "exit code 3"},
		{Name: "done, but it was killed", Lines: []string{success}, Exit: worker.Exit{Code: -1, Signal: "killed"}, Class: job.Crash, Says: "killed"},
		{Name: "silence", Class: job.Crash, Says: "no result"},
		{Name: "unknown option", Exit: worker.Exit{Code: 1, Stderr: "error: unknown option '--strict-mcp-config'\n"}, Class: job.Config, Says: "unknown option"},
		{Name: "words that nobody knows", Exit: worker.Exit{Code: 1, Stderr: "odd\n"}, Class: job.Crash, Says: "odd"},
		{Name: "too many turns", Lines: []string{`{"type":"result","subtype":"error_max_turns","is_error":true}`}, Exit: worker.Exit{Code: 1}, Class: job.Budget, Says: "error_max_turns"},
		{Name: "no answer of that form", Lines: []string{`{"type":"result","subtype":"error_max_structured_output_retries","is_error":true}`}, Exit: worker.Exit{Code: 1},
			Class: job.InvalidOutput, Says: "structured"},
		{Name: "no login", Lines: []string{failed("Not logged in · Please run /login")}, Exit: worker.Exit{Code: 1}, Class: job.Auth, Says: "Not logged in"},
		{Name: "limit, old words", Lines: []string{failed("Claude AI usage limit reached|1795290000")}, Exit: worker.Exit{Code: 1}, Class: job.RateLimit, Says: "limit",
			At: time.Unix(1795290000, 0)},
		{Name: "limit, a clock", Lines: []string{failed("You've hit your session limit · resets 3:40pm (Europe/Berlin)")}, Exit: worker.Exit{Code: 1}, Class: job.RateLimit, Says: "limit",
			At: at("2026-11-21T14:40:00Z")},
		{Name: "limit, tomorrow", Lines: []string{failed("5-hour limit reached ∙ resets 1am (UTC)")}, Exit: worker.Exit{Code: 1}, Class: job.RateLimit, Says: "limit",
			At: at("2026-11-22T01:00:00Z")},
		{Name: "limit, a date", Lines: []string{failed("You've hit your weekly limit · resets Jan 2, 12am (UTC)")}, Exit: worker.Exit{Code: 1}, Class: job.RateLimit, Says: "limit",
			At: at("2027-01-02T00:00:00Z")},
		{Name: "limit, told before", Lines: []string{`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1795290000}}`,
			failed("You've hit your limit")}, Exit: worker.Exit{Code: 1}, Class: job.RateLimit, Says: "limit", At: time.Unix(1795290000, 0)},
	})
}

// FuzzEvents feeds any bytes, line by line: no panic, no event that is too large.
func FuzzEvents(f *testing.F) {
	workertest.FuzzEvents(f, testSession, func(_ []byte, stderr string) { retryAfter(stderr, workertest.Now) }, "resets Nov 25, 3pm (UTC)")
}
