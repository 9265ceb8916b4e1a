package agentcore_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
	"github.com/agentsched/agentsched/worker"
)

// parrot is an adapter whose every line of output is a finished command: what
// an agent does that goes in circles. A line "usage N" is N tokens besides.
type parrot struct{}

func (parrot) Locate(job.WorkerSettings) (string, error)       { return "/bin/sh", nil }
func (parrot) Version(context.Context, string) (string, error) { return "1", nil }
func (parrot) Start(t *worker.Task) (worker.Session, error)    { return &parrotSession{t}, nil }

type parrotSession struct{ task *worker.Task }

func (s *parrotSession) Command() worker.Command {
	return worker.Command{Path: "/bin/sh", Args: []string{"-c", s.task.Instructions}, Env: s.task.Environ, Dir: s.task.Dir}
}

func (s *parrotSession) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Output:
		return worker.Events(s.event(in.Line)...)
	case worker.Ended:
		return []worker.Action{worker.Finish{Result: s.result(in.Exit)}}
	}
	return nil
}

func (s *parrotSession) event(line []byte) []job.Event {
	text := string(line)
	if n, ok := strings.CutPrefix(text, "usage "); ok {
		tokens, _ := strconv.ParseInt(n, 10, 64)
		return []job.Event{{Kind: job.EventUsage, Usage: &job.Usage{OutputTokens: tokens}}}
	}
	zero := 0
	return []job.Event{{Kind: job.EventCommand, Command: text, CallID: text}, {Kind: job.EventCommand, Command: text, CallID: text, Text: "same", ExitCode: &zero}}
}

func (s *parrotSession) result(e worker.Exit) worker.Result {
	if e.Code != 0 {
		return worker.Result{Class: job.Crash, Message: "died"}
	}
	return worker.Result{}
}

// as runs the script on the parrot.
func (c *client) runAs(id job.ID, kind job.WorkerKind, s job.Spec) {
	c.t.Helper()
	s.Worker = kind
	choice := job.Choice{Worker: kind}
	var a ipc.PermitAnswer
	c.must(ipc.MethodRequestPermit, ipc.PermitRequest{Job: id, Tenant: s.Tenant, Attempt: 1, Choice: choice, Workspace: s.Workspace, Limits: s.Limits}, &a)
	if a.Permit == nil {
		c.t.Fatalf("permit for %s refused: %+v", id, a.Rejection)
	}
	c.must(ipc.MethodSubmitJob, ipc.SubmitJob{Permit: a.Permit.ID, Job: id, Attempt: 1, Choice: choice, Spec: s}, nil)
}

// watching returns the watchdog's default settings with a change.
func watching(change func(*watchdog.Config)) json.RawMessage {
	cfg := watchdog.Default()
	change(&cfg)
	text, err := json.Marshal(cfg)
	if err != nil {
		panic(err)
	}
	return text
}

func TestStalledRunIsStopped(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Watchdog = watching(func(w *watchdog.Config) {
			// On a busy host, a second of one that computes has hardly more.
			w.Stall.After, w.Stall.MinCPURatio = job.Duration(time.Second), 0.001
		})
	})
	c.run("silent", spec("sleep 300", nil))
	if o := c.outcome(); o.State != job.RunFailed || o.Class != job.Stalled || o.Hint == "" {
		t.Errorf("a run that does nothing: %+v", o)
	}
	// It prints nothing either, but it computes: its own timeout ends it.
	c.run("busy", spec("while :; do :; done", func(s *job.Spec) { s.Limits.Timeout = job.Duration(4 * time.Second) }))
	if o := c.outcome(); o.Class != job.Timeout {
		t.Errorf("a run that computes quietly: %+v", o)
	}
	c.end()
}

func TestCirclesAreCut(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(func(s *ipc.Configure) { s.Watchdog = watching(func(w *watchdog.Config) { w.Repetition.Calls = 3 }) })
	c.runAs("a", "parrot", spec("echo look; echo look; echo look; echo look; sleep 300", nil))
	if o := c.outcome(); o.State != job.RunFailed || o.Class != job.Stalled || !strings.Contains(o.Message, "look") {
		t.Errorf("the same call four times: %+v", o)
	}
	c.runAs("b", "parrot", spec("echo look; echo look; echo think; echo look; echo look", nil))
	if o := c.outcome(); !o.Succeeded() {
		t.Errorf("another call in between: %+v", o)
	}
	c.end()
}

// TestCircuit lets one kind of worker die until its breaker opens: it is
// refused then, another kind is not, and the next core knows.
func TestCircuit(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	for _, id := range []job.ID{"1", "2", "3", "4", "5"} {
		c.runAs(id, "parrot", spec("kill -9 $$", nil))
		c.outcome()
	}
	var told ipc.Circuits
	select {
	case told = <-c.circuits:
	case <-testrun.After(c.t):
		t.Fatal("nobody was told that the breaker opened")
	}
	if told.Changed.Worker != "parrot" || told.Changed.State != "open" || told.Changed.OpenUntil.Before(time.Now()) || told.Changed.Cause == "" {
		t.Errorf("told %+v", told.Changed)
	}
	refused := func(c *client) {
		t.Helper()
		var a ipc.PermitAnswer
		c.must(ipc.MethodRequestPermit, ipc.PermitRequest{Job: "6", Attempt: 1, Choice: job.Choice{Worker: "parrot"}, Workspace: job.Workspace{Isolation: job.NoWorkspace}}, &a)
		if a.Rejection == nil || a.Rejection.Reason != job.CircuitOpen || a.Rejection.RetryAfterMS <= 0 {
			t.Errorf("request for the sick kind: %+v", a)
		}
	}
	refused(c)
	c.run("7", spec("true", nil))
	if o := c.outcome(); !o.Succeeded() {
		t.Errorf("another kind: %+v", o)
	}
	c.end()

	next := start(t)
	next.hello()
	next.configure(func(s *ipc.Configure) { s.Circuits = told.Circuits })
	refused(next)
	// Configured again, it goes by what it knows itself.
	next.configure(nil)
	refused(next)
	next.end()
}

func TestUsageIsChargedAsItStreams(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	c.runAs("a", "parrot", spec("echo usage 6; echo usage 6; sleep 300", func(s *job.Spec) { s.Limits.MaxTokens = 10 }))
	if o := c.outcome(); o.Class != job.Budget || o.Usage.Tokens() != 12 {
		t.Errorf("outcome %+v", o)
	}
	// The core's own record refuses the next attempt whatever is claimed.
	var a ipc.PermitAnswer
	c.must(ipc.MethodRequestPermit, ipc.PermitRequest{Job: "a", Attempt: 2, Choice: job.Choice{Worker: "parrot"}, Limits: job.Limits{MaxTokens: 10}}, &a)
	if a.Rejection == nil || a.Rejection.Reason != job.LimitExceeded {
		t.Errorf("after the budget was spent: %+v", a)
	}
	c.end()
}
