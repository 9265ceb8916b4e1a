package opencode

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/workertest"
)

// testSession is a session whose program works on the job's prompt, as the assistant's message a1.
func testSession(t *testing.T) worker.Session {
	t.Helper()
	tk := conversationTask("")
	tk.Dir = "/workspace"
	s := newSession(tk, home{data: t.TempDir(), model: "fake/m"})
	s.Step(workertest.Now, worker.Started{})
	for _, l := range []string{`{"id":1,"status":200,"body":{"id":"s"}}`, `{"id":2,"status":204}`, assistant("a1", "msg_zzz")} {
		s.Step(workertest.Now, worker.Output{Line: []byte(l)})
	}
	return s
}

// event is a line of the relay, of an event of the session s.
func event(kind, members string) string {
	return `{"event":{"type":"` + kind + `","properties":{"sessionID":"s",` + members + `}}}`
}

func assistant(id, parent string) string {
	return event("message.updated", `"info":{"id":"`+id+`","role":"assistant","parentID":"`+parent+`"}`)
}

// partOf is an event of a part of the message a1.
func partOf(members string) string {
	return event("message.part.updated", `"part":{"id":"p","messageID":"a1",`+members+`}`)
}

func stepFinish(reason string) string {
	return partOf(`"type":"step-finish","reason":"` + reason + `"`)
}

func sessionError(name, data string) string {
	return event("session.error", `"error":{"name":"`+name+`","data":{`+data+`}}`)
}

func retry(attempt int, words string, after time.Duration) string {
	return event("session.status", fmt.Sprintf(`"status":{"type":"retry","attempt":%d,"message":%q,"next":%d}`, attempt, words, workertest.Now.Add(after).UnixMilli()))
}

const idle = `{"event":{"type":"session.idle","properties":{"sessionID":"s"}}}`

var (
	stepStart   = partOf(`"type":"step-start"`)
	runningTool = partOf(`"type":"tool","tool":"bash","callID":"c","state":{"status":"running","input":{"command":"x"}}`)
)

// TestHugeLine parses an output of 16 MB: cut, and in time that a test can wait for.
func TestHugeLine(t *testing.T) {
	l := partOf(`"type":"tool","tool":"bash","state":{"status":"completed","output":"` + strings.Repeat("y\\n", 8<<20) + `","metadata":{"exit":0}}`)
	s := workertest.Play(testSession(t))
	s.Event([]byte(runningTool))
	events := s.Event([]byte(l))
	if len(events) != 1 || events[0].Kind != job.EventCommand || len(events[0].Text) > job.MaxEventText || events[0].Truncated < 15<<20 {
		t.Fatalf("%d events", len(events))
	}
}

// TestOddLines feeds what nobody promised.
func TestOddLines(t *testing.T) {
	workertest.OddLines(t, testSession, map[string]string{
		``:                               `log`,
		`hello`:                          `log`,
		`{"event":`:                      `log`,
		`[1,2]`:                          `log`,
		`{"event":{"type":5}}`:           `log`,
		`{"event":{"type":"new.thing"}}`: ``,
		`{"id":77,"status":200}`:         ``,
		sessionError("", ""):             `error`,
		event("message.part.updated", `"part":{}`):                                                  ``,
		partOf(`"type":"tool","state":{"status":"completed"}`):                                      ``, // it has ended before
		partOf(`"type":"tool","tool":"bash","state":{"status":"running"}`):                          ``, // it may wait for a permission
		partOf(`"type":"tool","tool":"bash","state":{"status":"running","metadata":{"output":""}}`): `command`,
		partOf(`"type":"text","text":"half an"`):                                                    ``,
		partOf(`"type":"text","text":"whole","time":{"end":1}`):                                     `text`,
		stepFinish("unknown"): `step retry`,
		partOf(`"type":"step-finish","tokens":{"input":"many","output":2}`): `step usage`,
		strings.Replace(stepStart, "a1", "a0", 1):                           ``, // of another message
		strings.Replace(stepStart, `"s"`, `"another"`, 1):                   ``, // of another session
	})
}

// TestEarlierRuns checks that what the program says of a session before it has this run's prompt is of earlier runs: it
// repeats all messages of a session that is copied.
func TestEarlierRuns(t *testing.T) {
	tk := conversationTask("")
	s := newSession(tk, home{data: t.TempDir()})
	s.Step(workertest.Now, worker.Started{})
	p := workertest.Play(s)
	p.Event([]byte(`{"id":1,"status":200,"body":{"id":"s"}}`))
	for _, l := range []string{assistant("a1", "msg_000"), stepStart, partOf(`"type":"text","text":"old","time":{"end":1}`), stepFinish("stop")} {
		if events := p.Event([]byte(l)); len(events) > 0 {
			t.Errorf("%s: %+v", l, events)
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
		events := workertest.Play(testSession(t)).Event([]byte(partOf(`"type":"step-finish","reason":"stop","tokens":` + c.tokens + `,"cost":` + c.cost)))
		if len(events) != 2 || events[1].Usage == nil || *events[1].Usage != c.want {
			t.Errorf("%s: %+v", c.tokens, events)
		}
	}
}

// TestResults covers ends that no transcript has.
func TestResults(t *testing.T) {
	date := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	workertest.Ends(t, testSession, []workertest.End{
		{Name: "done", Lines: []string{stepStart, stepFinish("stop"), idle}},
		{Name: "done after an error that healed", Lines: []string{sessionError("APIError", `"message":"x"`), stepStart, stepFinish("stop"), idle}},
		{Name: "done, but it failed", Lines: []string{stepStart, stepFinish("stop"), idle}, Exit: worker.Exit{Code: 3}, Class: job.Crash, Says: "exit code 3"},
		{Name: "done, but it was killed", Lines: []string{stepStart, stepFinish("stop"), idle}, Exit: worker.Exit{Code: -1, Signal: "killed"}, Class: job.Crash, Says: "killed"},
		{Name: "silence", Class: job.Crash, Says: "before its answer"},
		{Name: "ended between steps", Lines: []string{stepStart, stepFinish("tool-calls"), idle}, Class: job.Crash, Says: "before its answer"},
		{Name: "ended in a step", Lines: []string{stepStart, stepFinish("stop"), stepStart}, Class: job.Crash, Says: "before its answer"},
		{Name: "ended before it was idle", Lines: []string{stepStart, stepFinish("stop")}, Class: job.Crash, Says: "before its answer"},
		{Name: "broken off", Lines: []string{stepStart, stepFinish("unknown"), idle}, Class: job.Server, Says: "broke off"},
		{Name: "too long an answer", Lines: []string{stepStart, stepFinish("length"), idle}, Class: job.ResourceExhausted, Says: "output limit"},
		{Name: "error, then exit 0", Lines: []string{sessionError("UnknownError", `"message":"odd"`), idle}, Class: job.Unknown, Says: "odd"},
		{Name: "no login", Lines: []string{sessionError("ProviderAuthError", `"message":"no key"`)}, Exit: worker.Exit{Code: 1}, Class: job.Auth, Says: "no key"},
		{Name: "no such model", Lines: []string{sessionError("UnknownError", `"message":"Model not found: zz/m."`), idle}, Class: job.Config, Says: "zz/m"},
		{Name: "no credit", Lines: []string{sessionError("APIError", `"message":"Your credit balance is too low","statusCode":400`)}, Exit: worker.Exit{Code: 1}, Class: job.ResourceExhausted, Says: "credit"},
		{Name: "no network", Lines: []string{sessionError("APIError", `"message":"Cannot connect to API: Unable to connect. Is the computer able to access the url?"`)}, Exit: worker.Exit{Code: 1},
			Class: job.Network, Says: "connect"},
		{Name: "rate limit, seconds", Lines: []string{sessionError("APIError", `"message":"x","statusCode":429,"responseHeaders":{"Retry-After":"1.5"}`)}, Exit: worker.Exit{Code: 1},
			Class: job.RateLimit, Says: "429", After: 1500 * time.Millisecond},
		{Name: "rate limit, milliseconds", Lines: []string{sessionError("APIError", `"message":"x","statusCode":429,"responseHeaders":{"retry-after-ms":"250","retry-after":"1"}`)}, Exit: worker.Exit{Code: 1},
			Class: job.RateLimit, Says: "429", After: 250 * time.Millisecond},
		{Name: "rate limit, a date", Lines: []string{sessionError("APIError", `"message":"x","statusCode":429,"responseHeaders":{"retry-after":"Sat, 21 Nov 2026 09:00:00 GMT"}`)}, Exit: worker.Exit{Code: 1},
			Class: job.RateLimit, Says: "429", At: date},
		{Name: "rate limit, nonsense", Lines: []string{sessionError("APIError", `"message":"x","statusCode":429,"responseHeaders":{"retry-after":"1e300"}`)}, Exit: worker.Exit{Code: 1}, Class: job.RateLimit, Says: "429"},
		{Name: "an unknown option", Exit: worker.Exit{Code: 1, Stderr: "opencode serve\n\nstarts a headless opencode server\n\nOptions:\n"}, Class: job.Crash, Says: "Options"},
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
		runningTool, stepFinish("stop"), retry(1, "odd", time.Second), event("permission.asked", `"id":"q","permission":"bash","metadata":{"command":"make"}`), idle, "\x1b[91mError: \x1b[0mSession not found")
}
