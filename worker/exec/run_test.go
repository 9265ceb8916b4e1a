package exec_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/exec"
)

// TestResult holds the table "What counts" of the protocol's page, and more.
func TestResult(t *testing.T) {
	const completed, failed = `{"type":"result","status":"completed","answer":"yes"}`, `{"type":"result","status":"failed","class":"AUTH","message":"no key","hint":"log in"}`
	tests := []struct {
		name    string
		lines   []string
		exit    worker.Exit
		class   job.ErrorClass
		message string // a part of it
		answer  string
		warning string // a part of one; "" none
	}{
		{"completed", []string{completed}, worker.Exit{}, job.NoError, "", "yes", ""},
		{"completed, exit 3", []string{completed}, worker.Exit{Code: 3, Stderr: "oh\n"}, job.Unknown, "status 3: oh", "yes", ""},
		{"completed, signal", []string{completed}, worker.Exit{Code: -1, Signal: "killed"}, job.Crash, "killed", "yes", ""},
		{"failed", []string{failed}, worker.Exit{}, job.Auth, "no key", "", ""},
		{"failed, exit 1", []string{failed}, worker.Exit{Code: 1}, job.Auth, "no key", "", ""},
		{"failed, signal", []string{failed}, worker.Exit{Code: -1, Signal: "killed"}, job.Auth, "no key", "", ""},
		{"none", nil, worker.Exit{}, job.Unknown, "without a result", "", ""},
		{"none, exit 1", nil, worker.Exit{Code: 1, Stderr: "a\nb"}, job.Crash, "without a result: a\nb", "", ""},
		{"none, signal", nil, worker.Exit{Code: -1, Signal: "killed"}, job.Crash, "killed", "", ""},
		{"stopped", []string{completed}, worker.Exit{Stopped: true}, job.CancelledClass, "stopped", "yes", ""},
		{"not readable", []string{`{"type":"result","status":1}`}, worker.Exit{}, job.Config, "could not be read", "", `a "result" line was ignored`},
		{"not readable, then completed", []string{`{"type":"result","status":1}`, completed}, worker.Exit{}, job.Config, "could not be read", "yes", `a "result" line was ignored`},
		{"another protocol", []string{`{"type":"hello","protocol":2}`, completed}, worker.Exit{}, job.Config, "version 2", "yes", ""},
		{"completed, then failed", []string{completed, failed}, worker.Exit{}, job.Auth, "no key", "", "more than one"},
		{"failed, then completed", []string{failed, completed}, worker.Exit{}, job.Auth, "no key", "", "more than one"},
		{"completed twice", []string{completed, `{"type":"result","status":"completed","answer":"no"}`}, worker.Exit{}, job.NoError, "", "yes", "more than one"},
		{"completed with a class", []string{`{"type":"result","status":"completed","class":"SERVER"}`}, worker.Exit{}, job.Server, "without a message", "", "and the error class"},
		{"odd status", []string{`{"type":"result","status":"done"}`}, worker.Exit{}, job.Unknown, "", "", `status "done"`},
		{"no status", []string{`{"type":"result"}`}, worker.Exit{}, job.Unknown, "", "", `status ""`},
		{"odd class", []string{`{"type":"result","status":"failed","class":"OOPS"}`}, worker.Exit{}, job.Unknown, "", "", `"OOPS"`},
		{"class of the scheduler", []string{`{"type":"result","status":"failed","class":"CANCELLED"}`}, worker.Exit{}, job.Unknown, "", "", `"CANCELLED"`},
		{"failed without a class", []string{`{"type":"result","status":"failed","message":"x"}`}, worker.Exit{}, job.Unknown, "x", "", ""},
		{"unknown fields", []string{`{"type":"result","status":"completed","answer":"a","more":{}}`}, worker.Exit{}, job.NoError, "", "a", ""},
		{"answer of JSON", []string{`{"type":"result","status":"completed","answer":{"ok": [1, 2]}}`}, worker.Exit{}, job.NoError, "", `{"ok":[1,2]}`, ""},
		{"last text is the answer", []string{`{"type":"text","text":"a"}`, `{"type":"text","text":"b"}`, `{"type":"result","status":"completed"}`}, worker.Exit{}, job.NoError, "", "b", ""},
		{"a result in a log line", []string{"result: " + completed}, worker.Exit{}, job.Unknown, "without a result", "", ""},
		{"a result in a text", []string{`{"type":"text","text":"{\"type\":\"result\",\"status\":\"completed\"}"}`}, worker.Exit{}, job.Unknown, "without a result", `{"type":"result"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, newTask(t, "/bin/sh"))
			var warnings []string
			for _, line := range tt.lines {
				for _, e := range events(s, []byte(line)) {
					if e.Kind == job.EventWarning {
						warnings = append(warnings, e.Text)
					}
				}
			}
			r := end(s, tt.exit)
			if r.Class != tt.class || !strings.Contains(r.Message, tt.message) || !strings.HasPrefix(r.Answer, tt.answer) {
				t.Errorf("got %+v, want class %q, message with %q, answer %q", r, tt.class, tt.message, tt.answer)
			}
			if all := strings.Join(warnings, "|"); tt.warning == "" && all != "" || !strings.Contains(all, tt.warning) {
				t.Errorf("warnings %q, want %q", all, tt.warning)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for ms, want := range map[string]time.Duration{
		"1500": 1500 * time.Millisecond, "0": 0, "-1": -1, "604800001": -1, "9223372036854775807": -1, "null": -1,
	} {
		s := start(t, newTask(t, "/bin/sh"))
		events(s, []byte(`{"type":"result","status":"failed","class":"RATE_LIMIT","retry_after_ms":`+ms+`}`))
		r := end(s, worker.Exit{})
		switch {
		case r.Class != job.RateLimit:
			t.Errorf("%s ms: class %s", ms, r.Class)
		case want < 0 && r.RetryAt != nil:
			t.Errorf("%s ms: retry after %v, want none", ms, r.RetryAt.After)
		case want >= 0 && (r.RetryAt == nil || r.RetryAt.After != want):
			t.Errorf("%s ms: retry after %v, want %v", ms, r.RetryAt, want)
		}
	}
}

// TestEvents shows events as "kind field…".
func TestEvents(t *testing.T) {
	tests := []struct{ line, want string }{
		{`{"type":"hello","protocol":1,"name":"mine","version":"2"}`, "log worker mine 2"},
		{`{"type":"session","session":"s"}`, "session s"},
		{`{"type":"session"}`, ""},
		{`{"type":"text","text":"hi","unknown":1}`, "text hi"},
		{`{"type":"log","text":"hi"}`, "log hi"},
		{`{"type":"warning","text":"hi"}`, "warning hi"},
		{`{"type":"step","step":"plan"}`, "step plan"},
		{`{"type":"file","path":"DIR/a/b","change":"added"}`, "file a/b added"},
		{`{"type":"file","path":"a","change":"odd"}`, "file a modified"},
		{`{"type":"file","path":"/etc/passwd","change":"deleted"}`, "file /etc/passwd deleted"},
		{`{"type":"file"}`, "warning a file line was ignored: it has no path"},
		{`{"type":"command","phase":"start","id":"1","command":"ls"}`, "command ls 1 running"},
		{`{"type":"command","phase":"end","id":"1","exit_code":2,"ms":5,"output":"x"}`, "command ls 1 exit 2 5ms x"},
		{`{"type":"command","phase":"end","id":"9","ms":-5}`, "command  9 exit -1 0ms "},
		{`{"type":"command","phase":"middle"}`, `warning a command line was ignored: phase "middle", want start or end`},
		{`{"type":"usage","input_tokens":3,"output_tokens":2,"cost_usd":0.5}`, "usage 3+2 0.5 true"},
		{`{"type":"usage","input_tokens":3}`, "usage 3+0 0 false"},
		{`{"type":"usage","input_tokens":-3}`, "warning a usage line was ignored: -3 tokens, want an increment of 0 to 1000000000"},
		{`{"type":"usage","input_tokens":2000000000}`, ""}, // warned of already
		{`{"type":"usage","cost_usd":-1}`, "warning a usage line was ignored: cost_usd -1, want an increment of 0 to 10000"},
		{`{"type":"usage","input_tokens":1,"cached_tokens":9}`, "warning a usage line has 1 input tokens but 9 of them cached; the larger number counts|usage 9+0 0 false"},
		{`{"type":"telepathy"}`, `warning lines of the unknown type "telepathy" are ignored`},
		{`{"type":"telepathy"}`, ""},
		{`{"type":"text","text":1}`, "warning a \"text\" line was ignored: json: cannot unmarshal number…"},
		{`{"type":"text","text":1}`, ""},
		{`Compiling…`, "log Compiling…"},
		{`{"type":`, `log {"type":`},
		{`{"text":"no type"}`, `log {"text":"no type"}`},
		{`[1]`, "log [1]"},
		{``, ""},
		{"  ", ""},
	}
	task := newTask(t, "/bin/sh")
	s := start(t, task)
	for _, tt := range tests {
		var got []string
		for _, e := range events(s, []byte(strings.ReplaceAll(tt.line, "DIR", task.Dir))) {
			got = append(got, show(e))
		}
		joined := strings.Join(got, "|")
		if head, ok := strings.CutSuffix(tt.want, "…"); ok && strings.HasPrefix(joined, head) && !strings.HasSuffix(tt.line, "…") {
			continue // the rest is encoding/json's
		}
		if joined != tt.want {
			t.Errorf("%s\n got %q\nwant %q", tt.line, got, tt.want)
		}
	}
}

func show(e job.Event) string {
	switch {
	case e.Kind == job.EventCommand && e.ExitCode == nil:
		return fmt.Sprintf("command %s %s running", e.Command, e.CallID)
	case e.Kind == job.EventCommand:
		return fmt.Sprintf("command %s %s exit %d %dms %s", e.Command, e.CallID, *e.ExitCode, e.Millis, e.Text)
	case e.Kind == job.EventUsage:
		return fmt.Sprintf("usage %d+%d %g %v", e.Usage.InputTokens, e.Usage.OutputTokens, e.Usage.CostUSD, e.Usage.CostKnown)
	case e.Kind == job.EventFile:
		return fmt.Sprintf("file %s %s", e.Path, e.Change)
	}
	return string(e.Kind) + " " + e.Text + e.Session + e.Step
}

func TestLineTooLong(t *testing.T) {
	s := start(t, newTask(t, "/bin/sh"))
	line := append([]byte(`{"type":"result","status":"completed","answer":"`), bytes.Repeat([]byte("x"), exec.MaxLine)...)
	events := events(s, append(line, `"}`...))
	if len(events) != 1 || events[0].Kind != job.EventWarning {
		t.Errorf("events %v, want one warning", events)
	}
	if r := end(s, worker.Exit{}); r.Class != job.Unknown {
		t.Errorf("result %+v, want UNKNOWN", r)
	}
}

// A long answer is cut, but not one that a schema must still be able to read.
func TestLongAnswer(t *testing.T) {
	line := []byte(`{"type":"result","status":"completed","answer":"` + strings.Repeat("x", job.MaxEventText+1) + `"}`)
	s := start(t, newTask(t, "/bin/sh"))
	events(s, line)
	if r := end(s, worker.Exit{}); r.Class != job.NoError || len(r.Answer) > job.MaxEventText {
		t.Errorf("class %q, answer of %d bytes", r.Class, len(r.Answer))
	}
	task := newTask(t, "/bin/sh")
	task.Output = []byte(`{"type":"string"}`)
	s = start(t, task)
	events(s, line)
	if r := end(s, worker.Exit{}); r.Class != job.InvalidOutput {
		t.Errorf("result of class %q, want INVALID_OUTPUT", r.Class)
	}
}

func TestCancel(t *testing.T) {
	s := start(t, newTask(t, "/bin/sh"))
	if line := written(s, worker.Cancel{}); !strings.HasPrefix(line, `{"type":"cancel","reason":`) || !strings.HasSuffix(line, "}\n") {
		t.Errorf("wrote %q", line)
	}
}

func TestLocateWithoutCommand(t *testing.T) {
	_, err := exec.Adapter{}.Start(newTask(t))
	var f *worker.Failure
	if !errors.As(err, &f) || f.Class != job.Config || f.Hint == "" {
		t.Errorf("error %v, want a failure of class CONFIG with a hint", err)
	}
}
