package opencode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// failedLine is what the program logs of a request that failed.
func failedLine(words string) string {
	return fmt.Sprintf(`timestamp=2026-11-21T08:43:50.707Z level=ERROR run=79d5a147 message="stream error" providerID=p modelID=m session.id=ses_1 small=false agent=agentsched mode=primary error.error=%q`,
		"AI_APICallError: "+words)
}

// TestVerdict covers when a run is given up, and as what. A line that begins
// with "timestamp" is one of standard error.
func TestVerdict(t *testing.T) {
	const begun, text = `{"type":"step_start","sessionID":"s"}`, `{"type":"text","part":{"text":"half an"}}`
	const done, brokeOff = `{"type":"step_finish","part":{"reason":"tool-calls"}}`, `{"type":"step_finish","part":{"reason":"unknown"}}`
	server, limited := failedLine("Internal Server Error"), failedLine("Too Many Requests")
	for _, c := range []struct {
		name  string
		lines []string
		class job.ErrorClass // "": the run goes on
		says  string
	}{
		{name: "steps that end", lines: []string{begun, done, begun, done, begun, done, begun}},
		{name: "a step that was repeated", lines: []string{begun, begun, text, done, begun}},
		{name: "a step that is repeated", lines: []string{begun, begun, begun}, class: job.Server, says: "same step 3 times"},
		{name: "a step that is repeated later", lines: []string{begun, done, begun, begun, begun}, class: job.Server, says: "3 times"},
		{name: "half an answer each time", lines: []string{begun, text, begun, text, begun}, class: job.Server, says: "3 times"},
		{name: "an end that is none", lines: []string{begun, brokeOff, begun, brokeOff, begun}, class: job.Server, says: "3 times"},
		{name: "two failures", lines: []string{server, server}},
		{name: "three failures", lines: []string{server, server, server}, class: job.Server, says: "3 requests"},
		{name: "three failures with an answer between", lines: []string{server, server, begun, done, server}},
		{name: "no network", lines: slices.Repeat([]string{failedLine("Cannot connect to API: Unable to connect. Is the computer able to access the url?")}, 3), class: job.Network, says: "Unable to connect"},
		{name: "a lost connection", lines: slices.Repeat([]string{failedLine("Cannot connect to API: The socket connection was closed unexpectedly.")}, 3), class: job.Server, says: "closed"},
		{name: "odd words", lines: slices.Repeat([]string{failedLine("odd \x1b[31m\xff \"words\"\n")}, 3), class: job.Server, says: `"words"`},
		{name: "a rate limit, which it waits for", lines: slices.Repeat([]string{limited}, 5)},
		{name: "failures that it gave up by itself", lines: append([]string{`{"type":"error","error":{"name":"APIError","data":{"statusCode":500}}}`}, slices.Repeat([]string{server}, 5)...)},
		{name: "failures that healed", lines: []string{server, server, begun, text, done}},
		{name: "both kinds in turn", lines: []string{server, begun, server, server, begun, server, begun}, class: job.Server, says: "same step 3 times"},
		{name: "too long a context, which it may shorten", lines: []string{failedLine("prompt is too long: 250000 tokens")}},
		{name: "requests for titles", lines: slices.Repeat([]string{strings.Replace(limited, "small=false", "small=true", 1)}, 5)},
		{name: "other log lines", lines: slices.Repeat([]string{`timestamp=2026-11-21T08:43:50.707Z level=ERROR message=process error="Too Many Requests"`}, 5)},
	} {
		s := workertest.Play(testSession(t))
		for i, l := range c.lines {
			if _, decided := s.Verdict(); decided {
				t.Errorf("%s: decided after %d lines", c.name, i)
			}
			if strings.HasPrefix(l, "timestamp") {
				s.ErrorLine([]byte(l))
			} else {
				s.Event([]byte(l))
			}
		}
		if r, decided := s.Verdict(); r.Class != c.class || decided != (c.class != job.NoError) || !strings.Contains(r.Message, c.says) {
			t.Errorf("%s: %v, %+v", c.name, decided, r)
		}
	}
}

// TestErrorLine covers what becomes of standard error.
func TestErrorLine(t *testing.T) {
	s := workertest.Play(testSession(t))
	for _, c := range []struct {
		line, text string
		kind       job.EventKind
	}{
		{"", "", ""},
		{" \t", "", ""},
		{"\x1b[91mError: \x1b[0mSession not found", "Error: Session not found", job.EventLog},
		{"no UTF-8: \xff", "no UTF-8: \uFFFD", job.EventLog},
		{failedLine("odd"), "a request to the model failed: odd", job.EventWarning},
	} {
		var got job.Event
		if events := s.ErrorLine([]byte(c.line)); len(events) > 0 {
			got = events[0]
		}
		if got.Kind != c.kind || got.Text != c.text {
			t.Errorf("%q: %+v", c.line, got)
		}
	}
	if e := workertest.Play(testSession(t)).ErrorLine([]byte(strings.Repeat("x", 1<<20)))[0]; len(e.Text) > job.MaxEventText || e.Truncated == 0 {
		t.Errorf("a long line: %d bytes", len(e.Text))
	}
}

// TestLoggedFailureExplains checks that an end without a word is explained by
// the last request, and not by the program's log as it stands.
func TestLoggedFailureExplains(t *testing.T) {
	s := workertest.Play(testSession(t))
	l := failedLine("Cannot connect to API: Unable to connect.")
	s.ErrorLine([]byte(l))
	if r := s.Result(worker.Exit{Code: 1, Stderr: l + "\n"}); r.Class != job.Network || strings.Contains(r.Message, "timestamp") {
		t.Errorf("%+v", r)
	}
}
