package opencode

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// TestHugeLine parses an output of 16 MB: cut, and in time that a test can wait for.
func TestHugeLine(t *testing.T) {
	l := `{"type":"tool_use","part":{"tool":"bash","state":{"status":"completed","output":"` + strings.Repeat("y\\n", 8<<20) + `","metadata":{"exit":0}}}}`
	events := workertest.Play(testSession(t)).Event([]byte(l))
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
		`{"type":"error"}`:     `error`,
		`{"type":"tool_use"}`:  `tool`,
		`{"type":"step_finish","part":{"reason":"unknown"}}`:                                     `step retry`,
		`{"type":"step_finish","sessionID":"s","part":{"tokens":{"input":"many","output":2}}}`:   `session step usage`,
		`{"type":"tool_use","part":{"tool":"bash","state":{"status":"error","error":"killed"}}}`: `command`,
	})
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
		events := workertest.Play(testSession(t)).Event([]byte(`{"type":"step_finish","part":{"reason":"stop","tokens":` + c.tokens + `,"cost":` + c.cost + `}}`))
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
	workertest.Ends(t, testSession, []workertest.End{
		{Name: "done", Lines: []string{begun, finish("stop")}},
		{Name: "done after an error that healed", Lines: []string{failed("APIError", `"message":"x"`), begun, finish("stop")}},
		{Name: "done, but it failed", Lines: []string{begun, finish("stop")}, Exit: worker.Exit{Code: 3}, Class: job.Crash, Says: "exit code 3"},
		{Name: "done, but it was killed", Lines: []string{begun, finish("stop")}, Exit: worker.Exit{Code: -1, Signal: "killed"}, Class: job.Crash, Says: "killed"},
		{Name: "silence", Class: job.Crash, Says: "before its answer"},
		{Name: "ended between steps", Lines: []string{begun, finish("tool-calls")}, Class: job.Crash, Says: "before its answer"},
		{Name: "ended in a step", Lines: []string{begun, finish("stop"), begun}, Class: job.Crash, Says: "before its answer"},
		{Name: "broken off", Lines: []string{begun, finish("unknown")}, Class: job.Server, Says: "broke off"},
		{Name: "too long an answer", Lines: []string{begun, finish("length")}, Class: job.ResourceExhausted, Says: "output limit"},
		{Name: "error, then exit 0", Lines: []string{failed("UnknownError", `"message":"odd"`)}, Class: job.Unknown, Says: "odd"},
		{Name: "no login", Lines: []string{failed("ProviderAuthError", `"message":"no key"`)}, Exit: worker.Exit{Code: 1}, Class: job.Auth, Says: "no key"},
		{Name: "no credit", Lines: []string{failed("APIError", `"message":"Your credit balance is too low","statusCode":400`)}, Exit: worker.Exit{Code: 1}, Class: job.ResourceExhausted, Says: "credit"},
		{Name: "no network", Lines: []string{failed("APIError", `"message":"Cannot connect to API: Unable to connect. Is the computer able to access the url?"`)}, Exit: worker.Exit{Code: 1},
			Class: job.Network, Says: "connect"},
		{Name: "rate limit, seconds", Lines: []string{failed("APIError", `"message":"x","statusCode":429,"responseHeaders":{"Retry-After":"1.5"}`)}, Exit: worker.Exit{Code: 1},
			Class: job.RateLimit, Says: "429", After: 1500 * time.Millisecond},
		{Name: "rate limit, milliseconds", Lines: []string{failed("APIError", `"message":"x","statusCode":429,"responseHeaders":{"retry-after-ms":"250","retry-after":"1"}`)}, Exit: worker.Exit{Code: 1},
			Class: job.RateLimit, Says: "429", After: 250 * time.Millisecond},
		{Name: "rate limit, a date", Lines: []string{failed("APIError", `"message":"x","statusCode":429,"responseHeaders":{"retry-after":"Sat, 21 Nov 2026 09:00:00 GMT"}`)}, Exit: worker.Exit{Code: 1},
			Class: job.RateLimit, Says: "429", At: date},
		{Name: "rate limit, nonsense", Lines: []string{failed("APIError", `"message":"x","statusCode":429,"responseHeaders":{"retry-after":"1e300"}`)}, Exit: worker.Exit{Code: 1}, Class: job.RateLimit, Says: "429"},
		{Name: "lost session", Exit: worker.Exit{Code: 1, Stderr: "\x1b[91m\x1b[1mError: \x1b[0mSession not found\n"}, Class: job.Config, Says: ": Error: Session not found"},
		{Name: "unknown option", Exit: worker.Exit{Code: 1, Stderr: "opencode run [message..]\n\nrun opencode with a message\n\nOptions:\n"}, Class: job.Config, Says: "Options"},
		{Name: "words that nobody knows", Exit: worker.Exit{Code: 1, Stderr: "odd\n"}, Class: job.Unknown, Says: "odd"},
	})
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
	workertest.FuzzEvents(f, testSession, func(output []byte, _ string) { plainJSON(output) },
		failedLine("odd"), "\x1b[91mError: \x1b[0mSession not found")
}
