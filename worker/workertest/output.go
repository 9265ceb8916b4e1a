package workertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// failures are ways to end that no program has which did its job.
func failures() []worker.Exit {
	return []worker.Exit{
		{Code: 1, Stderr: "something\nwent wrong\n"},
		{Code: 2},
		{Code: 127, Stderr: "not found"},
		{Code: 255},
		{Code: -1, Signal: "killed"},
		{Code: -1, Signal: "segmentation fault", Stderr: "\xff\x00"},
	}
}

func (c Config) testNoOutput(t *testing.T) {
	next := c.sessions(t)
	if r := end(t, next(), worker.Exit{}); r.Class == job.NoError && !c.PlainOutput {
		t.Error("a program that printed nothing succeeded")
	}
	for _, e := range failures() {
		check(t, fmt.Sprintf("no output, %+v", e), end(t, next(), e), e)
	}
}

// testFailedProgram tells each transcript, the successful ones too, and then
// that the program failed.
func (c Config) testFailedProgram(t *testing.T) {
	next := c.sessions(t)
	for _, r := range c.transcripts(t) {
		for _, e := range failures() {
			s := next()
			tell(t, s, r.lines)
			check(t, fmt.Sprintf("%s, then %+v", r.name, e), end(t, s, e), e)
		}
	}
}

// testStopped stops each transcript's run after each of its lines.
func (c Config) testStopped(t *testing.T) {
	next := c.sessions(t)
	e := worker.Exit{Code: -1, Signal: "terminated", Stopped: true}
	check(t, "stopped before output", end(t, next(), e), e)
	for _, r := range c.transcripts(t) {
		for n := range r.lines {
			s := next()
			tell(t, s, r.lines[:n])
			s.Step(Now, worker.Cancel{})
			check(t, fmt.Sprintf("%s stopped after %d lines", r.name, n), end(t, s, e), e)
		}
	}
}

// huge is the length of the longest lines, in bytes.
const huge = 16 << 20

func (c Config) testHostileLines(t *testing.T) {
	next := c.sessions(t)
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	lines := map[string][]byte{
		"empty":             {},
		"blank":             []byte(" \t "),
		"carriage return":   []byte("\r"),
		"NUL":               {0},
		"random bytes":      noise,
		"no UTF-8":          []byte("\xff\xfe\x80"),
		"half an object":    []byte(`{"type":"result","status":`),
		"half a string":     []byte(`{"type":"text","text":"abc`),
		"two objects":       []byte(`{"type":"a"}{"type":"b"}`),
		"null":              []byte(`null`),
		"number":            []byte(`42`),
		"huge number":       []byte(`{"type":"usage","usage":{"input_tokens":1e999},"input_tokens":99999999999999999999}`),
		"array":             []byte(`[{"type":"result"}]`),
		"empty object":      []byte(`{}`),
		"type is no string": []byte(`{"type":{"type":"result"}}`),
		"unknown type":      []byte(`{"type":"workertest.unknown","x":[1,2,3]}`),
		"deep":              bytes.Repeat([]byte(`[`), 1<<20),
		"deep object":       bytes.Repeat([]byte(`{"type":`), 1<<18),
		"huge text":         bytes.Repeat([]byte("x"), huge),
		"huge no UTF-8":     bytes.Repeat([]byte("\xff"), huge),
		"huge string":       []byte(`{"type":"text","text":"` + strings.Repeat("é", huge/2) + `"}`),
	}
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			s := next()
			tell(t, s, [][]byte{line, line})
			if r := end(t, s, worker.Exit{}); r.Class == job.NoError && !c.PlainOutput {
				t.Error("a program that printed no result succeeded")
			} else if len(r.Answer) > job.MaxEventText {
				t.Errorf("the answer has %d bytes, at most %d are kept", len(r.Answer), job.MaxEventText)
			}
		})
	}
}

// testGreased changes each value of each transcript's lines to another type,
// since programs change.
func (c Config) testGreased(t *testing.T) {
	next := c.sessions(t)
	for _, r := range c.transcripts(t) {
		for n, line := range r.lines {
			for _, changed := range append(greased(line), line[:len(line)/2]) {
				s := next()
				tell(t, s, r.lines[:n])
				tell(t, s, [][]byte{changed})
				e := worker.Exit{Code: 1}
				check(t, fmt.Sprintf("%s with line %d changed to %.200s", r.name, n+1, changed), end(t, s, e), e)
			}
		}
	}
}

// maxGreased bounds how many changes are tried of one line.
const maxGreased = 60

// greased returns copies of a JSON line in each of which one value was
// replaced by one of another type.
func greased(line []byte) [][]byte {
	var root any
	if json.Unmarshal(line, &root) != nil {
		return nil
	}
	var out [][]byte
	var walk func(v any, set func(any))
	walk = func(v any, set func(any)) {
		for _, other := range []any{nil, -1, "", "workertest", true, []any{}, map[string]any{}} {
			if len(out) >= maxGreased || fmt.Sprintf("%T", other) == fmt.Sprintf("%T", v) {
				continue
			}
			set(other)
			if changed, err := json.Marshal(root); err == nil {
				out = append(out, changed)
			}
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			keys := make([]string, 0, len(v))
			for k := range v {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				walk(v[k], func(x any) { v[k] = x })
			}
		case []any:
			for i := range v {
				walk(v[i], func(x any) { v[i] = x })
			}
		}
	}
	walk(root, func(x any) { root = x })
	return out
}

// testLineIsOnlyLent overwrites each line after Event has returned.
func (c Config) testLineIsOnlyLent(t *testing.T) {
	next := c.sessions(t)
	recordings := append(c.transcripts(t), recording{name: "text", lines: [][]byte{[]byte("one"), []byte("two"), []byte("three")}})
	for _, r := range recordings {
		keep, lend := next(), next()
		var kept, lent []job.Event
		for _, line := range r.lines {
			kept = append(kept, tell(t, keep, [][]byte{line})...)
			loan := bytes.Clone(line)
			lent = append(lent, tell(t, lend, [][]byte{loan})...)
			for i := range loan {
				loan[i] = '!'
			}
		}
		if !reflect.DeepEqual(kept, lent) {
			t.Errorf("%s: events change when the line is overwritten after Event", r.name)
		}
		if a, b := end(t, keep, r.want.Exit), end(t, lend, r.want.Exit); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: result changes when lines are overwritten after Event: %+v, want %+v", r.name, b, a)
		}
	}
}

// testEveryInput gives sessions inputs that programs of other kinds cause: they
// must be ignored or answered, and change nothing about how a failure is judged.
func (c Config) testEveryInput(t *testing.T) {
	inputs := []worker.Input{
		worker.Started{}, worker.ErrorOutput{Line: []byte("oops")}, worker.ErrorOutput{}, worker.Message{ID: "m", Text: "hello"},
		worker.Answer{Question: "unknown"}, worker.Timer{Name: "unknown"}, worker.Checkpoint{Reason: "room is needed"},
		worker.Stored{KeptStep: worker.KeptStep{Step: worker.Step{ID: "unknown"}}}, worker.StreamLines{Lines: []byte("{}\n")}, worker.FileDone{ID: "unknown"}, worker.Cancel{},
	}
	next := c.sessions(t)
	for _, in := range inputs {
		s := next()
		settled := false
		for _, a := range s.Step(Now, in) {
			switch a := a.(type) {
			case worker.Emit:
				checkEvent(t, a.Event, fmt.Appendf(nil, "%T", in))
			case worker.Settle:
				settled = true
				if a.Message != "m" || a.State == worker.MessageRefused && a.Reason == "" {
					t.Errorf("%+v settles no message, or gives no reason", a)
				}
			case worker.Finish:
				t.Errorf("%T ends the run", in)
			}
		}
		if _, message := in.(worker.Message); settled && !message {
			t.Errorf("%T settles a message", in)
		}
		e := worker.Exit{Code: 1}
		check(t, fmt.Sprintf("after %T", in), end(t, s, e), e)
	}
}

// tell gives lines to s and checks the events that come back.
func tell(t testing.TB, s worker.Session, lines [][]byte) []job.Event {
	t.Helper()
	var all []job.Event
	for _, line := range lines {
		for _, a := range s.Step(Now, worker.Output{Line: line}) {
			switch a := a.(type) {
			case worker.Emit:
				checkEvent(t, a.Event, line)
				all = append(all, a.Event)
			case worker.Store:
				all = append(all, job.Event{Kind: job.EventStep, Step: a.Step.ID, Inputs: a.Step.Inputs, Result: a.Step.Result})
			case worker.Finish:
				if a.Result.Class == job.NoError && !a.Result.Checkpointed {
					t.Errorf("the run is a success before its end, after %.200q", line)
				}
			}
		}
	}
	return all
}

// end tells s how its program ended and returns the result.
func end(t testing.TB, s worker.Session, e worker.Exit) worker.Result {
	t.Helper()
	var results []worker.Result
	for _, a := range s.Step(Now, worker.Ended{Exit: e}) {
		if f, ok := a.(worker.Finish); ok {
			results = append(results, f.Result)
		}
	}
	if c, ok := s.(io.Closer); ok {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if len(results) != 1 {
		t.Errorf("the end is answered with %d results, want 1", len(results))
		return worker.Result{Class: job.Crash, Message: "no result"}
	}
	return results[0]
}

var kinds = []job.EventKind{
	job.EventSession, job.EventText, job.EventCommand, job.EventFile, job.EventTool, job.EventUsage,
	job.EventStep, job.EventRetry, job.EventWarning, job.EventError, job.EventLog,
}

func checkEvent(t testing.TB, e job.Event, line []byte) {
	t.Helper()
	if !slices.Contains(kinds, e.Kind) {
		t.Errorf("event of kind %q, which is not an adapter's to report, after %.200q", e.Kind, line)
	}
	if len(e.Text) > job.MaxEventText {
		t.Errorf("%s event has %d bytes of text, at most %d are kept, after %.200q", e.Kind, len(e.Text), job.MaxEventText, line)
	}
	if !utf8.ValidString(e.Text) {
		t.Errorf("%s event has text that is no UTF-8, after %.200q", e.Kind, line)
	}
	if u := e.Usage; u != nil {
		if min(u.InputTokens, u.CachedTokens, u.CacheWriteTokens, u.OutputTokens, u.ReasoningTokens) < 0 || u.CostUSD < 0 {
			t.Errorf("usage shrinks by %+v after %.200q", *u, line)
		}
	}
}

// check checks the result of a run that failed.
func check(t testing.TB, what string, r worker.Result, e worker.Exit) {
	t.Helper()
	if e.Stopped {
		return // the cause decides; only the answer is used
	}
	if r.Class == job.NoError {
		t.Errorf("%s: success, though the program failed", what)
		return
	}
	if !slices.Contains(job.ErrorClasses(), r.Class) {
		t.Errorf("%s: class %q is unknown", what, r.Class)
	}
	if strings.TrimSpace(r.Message) == "" {
		t.Errorf("%s: %s without a message", what, r.Class)
	}
	if !utf8.ValidString(r.Message) {
		t.Errorf("%s: message %q is no UTF-8", what, r.Message)
	}
}
