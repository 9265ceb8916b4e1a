package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// host is the one that this test binary may have.
var host *proc.Host

func TestMain(m *testing.M) {
	var err error
	if host, err = proc.NewHost(proc.Config{Log: zerolog.Nop()}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := host.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "processes are left:", err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// script is a session that runs a shell script and makes an event of each
// line: "KIND rest".
type script struct {
	text    string
	stdin   []byte
	lines   []string
	size    int // of the longest line
	exit    worker.Exit
	result  worker.Result
	command func(*worker.Command)
}

func (s *script) Command() worker.Command {
	c := worker.Command{Path: "/bin/sh", Args: []string{"-c", s.text}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: "/", Stdin: s.stdin}
	if s.command != nil {
		s.command(&c)
	}
	return c
}

// Step tells each line's event. What is written to the program of one that listens
// is "please stop".
func (s *script) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Output:
		return worker.Events(s.event(in.Line)...)
	case worker.ErrorOutput:
		return worker.Log(in.Line)
	case worker.Cancel:
		return []worker.Action{worker.Write{Data: []byte("please stop\n")}}
	case worker.Ended:
		s.exit = in.Exit
		return []worker.Action{worker.Finish{Result: s.result}}
	}
	return nil
}

func (s *script) event(line []byte) []job.Event {
	s.size = max(s.size, len(line))
	text := string(line[:min(len(line), 100)])
	s.lines = append(s.lines, text)
	kind, rest, _ := strings.Cut(text, " ")
	e := job.Event{Kind: job.EventKind(kind), Text: rest}
	switch e.Kind {
	case job.EventUsage:
		u := job.Usage{}
		fmt.Sscan(rest, &u.InputTokens, &u.OutputTokens)
		e.Usage = &u
	case job.EventCommand:
		e.Command, e.CallID = rest, rest
	case job.EventSession:
		e.Session = rest
	}
	return []job.Event{e}
}

// long is a stage that no machine is too busy for.
const long = 10 * time.Minute

// run runs the script and returns its outcome and events. A stop goes on to SIGTERM before long, since a shell that is
// just forking can miss a SIGINT that it has no trap for.
func run(t *testing.T, ctx context.Context, s worker.Session, change func(*worker.Run)) (job.Outcome, []job.Event) {
	t.Helper()
	return runIn(t, ctx, proc.Stages{Interrupt: 5 * time.Second, Terminate: 5 * time.Second, Kill: long}, s, change)
}

// runPatiently is run for a program that ends by itself when it is asked to: it has as long as it takes.
func runPatiently(t *testing.T, ctx context.Context, s worker.Session, change func(*worker.Run)) (job.Outcome, []job.Event) {
	t.Helper()
	return runIn(t, ctx, proc.Stages{Interrupt: long, Terminate: long, Kill: long}, s, change)
}

func runIn(t *testing.T, ctx context.Context, stages proc.Stages, s worker.Session, change func(*worker.Run)) (job.Outcome, []job.Event) {
	t.Helper()
	var mu sync.Mutex
	var events []job.Event
	r := worker.Run{
		Tag: "runner-test/" + t.Name() + "/1", LogDir: t.TempDir(),
		Sink: func(e job.Event) { mu.Lock(); defer mu.Unlock(); events = append(events, e) },
	}
	if change != nil {
		change(&r)
	}
	runner := worker.Runner{Host: host, Stages: stages, Log: zerolog.Nop()}
	o, err := runner.Run(ctx, s, r)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	if left, err := proc.Alive(r.Tag); err != nil || len(left) > 0 {
		t.Errorf("alive after the run: %v, %v", left, err)
	}
	return o, events
}

func TestRunCompletes(t *testing.T) {
	s := &script{text: `read x; echo "session s-1"; echo "text got $x"; echo "usage 10 5"; echo "step"; echo oops >&2; exit 0`, stdin: []byte("input\n"), result: worker.Result{Answer: "done"}}
	var dir string
	o, events := run(t, t.Context(), s, func(r *worker.Run) {
		dir = r.LogDir
		r.Model, r.Prices = "m", map[string]job.Price{"m": {Input: 1e6, Output: 2e6}}
	})
	if o.State != job.RunCompleted || o.Answer != "done" || o.Session != "s-1" || o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
	if want := (job.Usage{InputTokens: 10, OutputTokens: 5, CostUSD: 20, CostKnown: true, Steps: 1}); o.Usage != want {
		t.Errorf("usage %+v, want %+v", o.Usage, want)
	}
	if !slices.Contains(s.lines, "text got input") || s.exit.Stderr != "oops\n" {
		t.Errorf("lines %q, stderr %q", s.lines, s.exit.Stderr)
	}
	if !slices.ContainsFunc(events, func(e job.Event) bool { return e.Kind == job.EventLog && e.Text == "oops" }) {
		t.Errorf("no event for the line on standard error: %+v", events)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "stdout.log")); err != nil || !bytes.Contains(text, []byte("text got input\n")) {
		t.Errorf("log %q, %v", text, err)
	}
}

func TestRunIsNeverASuccessWithABadExit(t *testing.T) {
	for text, want := range map[string]string{
		"exit 3":      "exit code 3",
		"kill -9 $$":  "killed",
		"kill -15 $$": "terminated",
	} {
		o, _ := run(t, t.Context(), &script{text: text}, nil) // its Result says success
		if o.State != job.RunFailed || o.Class != job.Crash || !strings.Contains(o.Message, want) {
			t.Errorf("%s: outcome %+v", text, o)
		}
	}
}

func TestRunSweepsWhatTheWorkerLeft(t *testing.T) {
	s := &script{text: `setsid sh -c 'echo text up; exec sleep 300' & echo "text $!"; exit 0`}
	o, _ := run(t, t.Context(), s, nil)
	if o.State != job.RunCompleted {
		t.Errorf("outcome %+v", o)
	}
	if len(o.LeftBehind) == 0 {
		t.Error("what was left behind is not named")
	}
}

func TestRunStops(t *testing.T) {
	tests := []struct {
		name  string
		cause error
		state job.RunState
		class job.ErrorClass
	}{
		{"cancelled", &worker.Stop{Class: job.CancelledClass, Message: "by me"}, job.RunCancelled, job.CancelledClass},
		{"timeout", &worker.Stop{Class: job.Timeout, Message: "too late"}, job.RunFailed, job.Timeout},
		{"now", &worker.Stop{Class: job.Stalled, Message: "stuck", Now: true}, job.RunFailed, job.Stalled},
		{"foreign cause", fmt.Errorf("something else"), job.RunCancelled, job.CancelledClass},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			s := &script{text: `sleep 300 & setsid sleep 301 & echo text up; wait`}
			o, _ := run(t, ctx, s, func(r *worker.Run) {
				r.Sink = func(e job.Event) { cancel(tt.cause) } // as soon as it is up
			})
			if o.State != tt.state || o.Class != tt.class || o.Message != tt.cause.Error() || o.StopMillis == 0 || !s.exit.Stopped {
				t.Errorf("outcome %+v, exit %+v", o, s.exit)
			}
		})
	}
}

// TestHurry lets a worker ignore every gentle signal: with Hurry done it is
// gone long before the stages would have passed.
func TestHurry(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	hurry, now := context.WithCancel(t.Context())
	s := &script{text: `trap 'echo text trapped' INT TERM; echo text up; while :; do sleep 300 & wait $!; done`}
	o, events := runPatiently(t, ctx, s, func(r *worker.Run) {
		sink := r.Sink
		r.Hurry = hurry
		r.Sink = func(e job.Event) {
			sink(e)
			if e.Text == "up" {
				cancel(&worker.Stop{Class: job.CancelledClass, Message: "stop"})
			}
			if e.Text == "trapped" {
				now()
			}
		}
	})
	if o.State != job.RunCancelled || o.Signal != "killed" {
		t.Errorf("outcome %+v", o)
	}
	if !slices.ContainsFunc(events, func(e job.Event) bool { return e.Text == "trapped" }) {
		t.Error("the gentle stage was skipped")
	}
}

// TestCancelMessage lets a program that listens end by its own means.
func TestCancelMessage(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &script{text: `trap '' INT TERM; echo text up; read line; echo "text $line"; exit 0`, command: func(c *worker.Command) { c.KeepStdin = true }}
	o, events := runPatiently(t, ctx, s, func(r *worker.Run) {
		sink := r.Sink
		r.Sink = func(e job.Event) { sink(e); cancel(&worker.Stop{Class: job.CancelledClass, Message: "stop"}) }
	})
	if o.State != job.RunCancelled || o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
	if !slices.ContainsFunc(events, func(e job.Event) bool { return e.Text == "please stop" }) {
		t.Errorf("the message did not arrive: %+v", events)
	}
}

func TestRunBudgets(t *testing.T) {
	endless := "; while :; do sleep 300; done"
	tests := []struct {
		name   string
		script string
		change func(*worker.Run)
		want   string
	}{
		{"tokens", "echo usage 6 0; echo usage 0 5" + endless, func(r *worker.Run) { r.Tokens = 10 }, "11 tokens"},
		{"cost", "echo usage 6 5" + endless, func(r *worker.Run) {
			r.CostUSD, r.Model, r.Prices = 10, "m", map[string]job.Price{"m": {Input: 1e6, Output: 1e6}}
		}, "11.0000 US dollars"},
		{"steps", "echo step; echo step; echo step" + endless, func(r *worker.Run) { r.MaxSteps = 2 }, "max_steps, 2"},
		{"command time", "echo command slow" + endless, func(r *worker.Run) { r.MaxCommandTime = 10 * time.Millisecond }, `"slow" ran longer than max_command_time`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, _ := run(t, t.Context(), &script{text: tt.script}, tt.change)
			if o.State != job.RunFailed || o.Class != job.Budget || !strings.Contains(o.Message, tt.want) {
				t.Errorf("outcome %+v, want BUDGET with %q", o, tt.want)
			}
		})
	}
}

// decided is a script whose run a line decides, since its program would go on for
// ever. It hears its cost when it is stopped.
type decided struct {
	script
	line string
	why  worker.Result
	cost *float64
}

func (d *decided) Step(now time.Time, in worker.Input) []worker.Action {
	var line []byte
	switch in := in.(type) {
	case worker.Output:
		line = in.Line
	case worker.ErrorOutput:
		line = in.Line
	case worker.Ended:
		return []worker.Action{worker.Finish{Result: worker.Result{CostUSD: d.cost}}}
	}
	if rest, ok := strings.CutPrefix(string(line), "cost "); ok {
		d.cost = new(float64)
		fmt.Sscan(rest, d.cost)
		return nil
	}
	actions := d.script.Step(now, in)
	if string(line) == d.line {
		actions = append(actions, worker.Finish{Result: d.why})
	}
	return actions
}

func TestDecidedOnStandardError(t *testing.T) {
	s := &decided{script: script{text: "echo oops >&2; while :; do sleep 300; done"}, line: "oops", why: worker.Result{Class: job.Server, Message: "it grumbles"}}
	o, _ := run(t, t.Context(), s, nil)
	if o.State != job.RunFailed || o.Class != job.Server || o.Message != "it grumbles" {
		t.Errorf("outcome %+v", o)
	}
}

var comeBack = worker.Result{Class: job.RateLimit, Message: "come back later", RetryAt: &worker.RetryAfter{After: time.Hour}}

func TestDecidedBeforeItsEnd(t *testing.T) {
	s := &decided{script: script{text: "echo oops >&2; echo retry in an hour; while :; do sleep 300; done"}, line: "retry in an hour", why: comeBack}
	o, _ := run(t, t.Context(), s, nil)
	if o.State != job.RunFailed || o.Class != job.RateLimit || o.Message != "come back later" || o.RetryAt == nil || time.Until(*o.RetryAt) < 50*time.Minute || *o.RetryAt == o.RetryAt.Round(0) {
		t.Errorf("outcome %+v", o)
	}
}

// TestStandardErrorIsLogged: what the adapter logs of it is bounded.
func TestStandardErrorIsLogged(t *testing.T) {
	o, events := run(t, t.Context(), &script{text: "i=0; while [ $i -lt 2100 ]; do i=$((i+1)); echo oops $i >&2; done; echo text up"}, nil)
	logs := 0
	for _, e := range events {
		if e.Kind == job.EventLog {
			logs++
		}
	}
	if o.State != job.RunCompleted || logs != 2000 {
		t.Errorf("%d lines became events, want 2000; outcome %+v", logs, o)
	}
}

// TestCostOfTheProgram checks that what the program says of its cost replaces
// what was priced, and that nothing else does.
func TestCostOfTheProgram(t *testing.T) {
	prices := func(r *worker.Run) { r.Model, r.Prices = "m", map[string]job.Price{"m": {Input: 1e6, Output: 2e6}} }
	cost := func(usd float64) *float64 { return &usd }
	for name, c := range map[string]struct {
		said   *float64
		change func(*worker.Run)
		want   float64
		known  bool
	}{
		"said and priced":      {cost(0.5), prices, 0.5, true},
		"said":                 {cost(0.5), nil, 0.5, true},
		"free":                 {cost(0), prices, 0, true},
		"priced":               {nil, prices, 20, true},
		"priced, not yet said": {cost(-1), prices, 20, true},
		"priced, nonsense":     {cost(math.NaN()), prices, 20, true},
		"priced, no number":    {cost(math.Inf(1)), prices, 20, true},
		"neither":              {nil, nil, 0, false},
	} {
		s := &script{text: "echo usage 10 5", result: worker.Result{CostUSD: c.said}}
		o, _ := run(t, t.Context(), s, c.change)
		if o.State != job.RunCompleted || o.Usage.CostUSD != c.want || o.Usage.CostKnown != c.known {
			t.Errorf("%s: usage %+v of %+v", name, o.Usage, o)
		}
	}
	s := &decided{script: script{text: "trap 'echo cost 0.25; exit 0' INT; echo usage 10 5; echo retry in an hour; while :; do sleep 300 & wait $!; done"}, line: "retry in an hour", why: comeBack}
	o, _ := runPatiently(t, t.Context(), s, prices)
	if o.Class != job.RateLimit || o.Usage.CostUSD != 0.25 || !o.Usage.CostKnown {
		t.Errorf("decided before it said its cost: %+v", o)
	}
}

// faulty panics when it gets an input of one kind; "Command" is the method.
type faulty struct {
	script
	at string
}

func (f *faulty) fail(at string) {
	if f.at == at {
		panic("on purpose")
	}
}

func (f *faulty) Command() worker.Command {
	f.fail("Command")
	return f.script.Command()
}

func (f *faulty) Step(now time.Time, in worker.Input) []worker.Action {
	f.fail(fmt.Sprintf("Step(%T)", in))
	return f.script.Step(now, in)
}

// TestPanicEndsItsRunOnly: the program would go on for ever, and the adapter's
// panic ends it.
func TestPanicEndsItsRunOnly(t *testing.T) {
	for _, at := range []string{"Command", "Step(worker.Started)", "Step(worker.Output)", "Step(worker.ErrorOutput)", "Step(worker.Ended)"} {
		t.Run(at, func(t *testing.T) {
			text := "echo text up; echo oops >&2; while :; do sleep 300; done"
			if at == "Step(worker.Ended)" {
				text = "echo text up"
			}
			o, _ := run(t, t.Context(), &faulty{script{text: text}, at}, nil)
			if o.State != job.RunFailed || o.Class != job.Crash || !strings.Contains(o.Message, "panicked in "+at) {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestBudgetCrossedWithTheLastWords does not depend on whether the program
// ended before it was stopped.
func TestBudgetCrossedWithTheLastWords(t *testing.T) {
	for range 20 {
		o, _ := run(t, t.Context(), &script{text: "echo usage 6 5"}, func(r *worker.Run) { r.Tokens = 10 })
		if o.State != job.RunFailed || o.Class != job.Budget {
			t.Fatalf("outcome %+v", o)
		}
	}
}

func TestLongLines(t *testing.T) {
	s := &script{text: `head -c 16777216 /dev/zero | tr '\0' x; echo; echo text after; printf 'text no newline'`}
	o, events := run(t, t.Context(), s, nil)
	if o.State != job.RunCompleted || s.size != 16<<20 {
		t.Errorf("longest line %d, outcome %+v", s.size, o)
	}
	if last := events[len(events)-1]; last.Text != "no newline" {
		t.Errorf("last event %+v", last)
	}
}

func TestTooLongLineIsSkipped(t *testing.T) {
	s := &script{text: `head -c 70000000 /dev/zero | tr '\0' x; echo; echo text after`}
	o, events := run(t, t.Context(), s, nil)
	if o.State != job.RunCompleted || len(events) != 2 || events[0].Kind != job.EventWarning || events[1].Text != "after" {
		t.Errorf("events %+v, outcome %+v", events, o)
	}
}

func TestCannotStart(t *testing.T) {
	for _, path := range []string{"/no/such/program", "/etc/passwd"} {
		o, _ := run(t, t.Context(), &script{command: func(c *worker.Command) { c.Path = path }}, nil)
		if o.State != job.RunFailed || o.Class != job.Config || !strings.Contains(o.Message, path) {
			t.Errorf("%s: outcome %+v", path, o)
		}
	}
}
