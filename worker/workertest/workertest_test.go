package workertest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	protocol "github.com/agentsched/agentsched/worker/exec"
	"github.com/agentsched/agentsched/worker/workertest"
)

// faults are ways to break the contract, each with the part of the suite that
// must notice.
var faults = map[string]struct {
	part  string
	start func(t *worker.Task, s *broken) error // at Start
	event func(s *broken, line []byte, events []job.Event) []job.Event
	end   func(s *broken, e worker.Exit, r worker.Result) worker.Result
}{
	"success whatever the exit status": {part: "FailedProgram", end: func(_ *broken, _ worker.Exit, r worker.Result) worker.Result {
		return worker.Result{Answer: r.Answer}
	}},
	"success without output": {part: "NoOutput", end: func(_ *broken, e worker.Exit, r worker.Result) worker.Result {
		if e.Code == 0 {
			r.Class = job.NoError
		}
		return r
	}},
	"success of a cut line": {part: "HostileLines", end: func(s *broken, e worker.Exit, r worker.Result) worker.Result {
		if e.Code == 0 && s.last != nil {
			r.Class = job.NoError
		}
		return r
	}},
	"no message": {part: "FailedProgram", end: func(_ *broken, _ worker.Exit, r worker.Result) worker.Result {
		r.Message = ""
		return r
	}},
	"invented class": {part: "FailedProgram", end: func(_ *broken, _ worker.Exit, r worker.Result) worker.Result {
		if r.Class != job.NoError {
			r.Class = "OOPS"
		}
		return r
	}},
	"keeps the line": {part: "LineIsOnlyLent", end: func(s *broken, _ worker.Exit, r worker.Result) worker.Result {
		r.Answer = string(s.last)
		return r
	}},
	"panics on half JSON": {part: "HostileLines", event: func(_ *broken, line []byte, events []job.Event) []job.Event {
		if strings.HasPrefix(string(line), "{") && !strings.HasSuffix(string(line), "}") {
			panic("half")
		}
		return events
	}},
	"text that is too long": {part: "HostileLines", event: func(_ *broken, line []byte, events []job.Event) []job.Event {
		return append(events, job.Event{Kind: job.EventLog, Text: strings.ToValidUTF8(string(line), "?")})
	}},
	"text that is no UTF-8": {part: "HostileLines", event: func(_ *broken, line []byte, events []job.Event) []job.Event {
		return append(events, job.Event{Kind: job.EventLog, Text: string(line[:min(len(line), 100)])})
	}},
	"usage that shrinks": {part: "Transcripts", event: func(_ *broken, _ []byte, events []job.Event) []job.Event {
		return append(events, job.Event{Kind: job.EventUsage, Usage: &job.Usage{InputTokens: -1}})
	}},
	"an event of the Runner's": {part: "Transcripts", event: func(_ *broken, _ []byte, events []job.Event) []job.Event {
		return append(events, job.Event{Kind: job.EventState})
	}},
	"no result":         {part: "NoOutput"},
	"ends on a message": {part: "EveryInput"},
	"writes into the workspace": {part: "StartWritesOnlyItsFolders", start: func(t *worker.Task, _ *broken) error {
		return os.WriteFile(filepath.Join(t.Dir, "note"), nil, 0o600)
	}},
	"writes into the user's home": {part: "StartWritesOnlyItsFolders", start: func(*worker.Task, *broken) error {
		home, err := os.UserHomeDir()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(home, ".workertest-broken"), nil, 0o600)
	}},
	"a variable twice": {part: "Command", start: func(_ *worker.Task, s *broken) error {
		s.command.Env = append(s.command.Env, "PATH=/")
		return nil
	}},
	"the whole environment": {part: "Command", start: func(_ *worker.Task, s *broken) error {
		s.command.Env = os.Environ()
		return nil
	}},
	"a real key": {part: "Confined", start: func(t *worker.Task, s *broken) error {
		s.command.Env = append(s.command.Env, "OPENAI_API_KEY="+t.Getenv("OPENAI_API_KEY"))
		return nil
	}},
	"a link to the user's home": {part: "Confined", start: func(t *worker.Task, _ *broken) error {
		return os.Symlink(filepath.Join(t.UserEnv("HOME"), ".netrc"), filepath.Join(t.Home, "netrc"))
	}},
	"another folder": {part: "Command", start: func(_ *worker.Task, s *broken) error {
		s.command.Dir = "/"
		return nil
	}},
	"a relative path": {part: "Command", start: func(_ *worker.Task, s *broken) error {
		s.command.Path = "sh"
		return nil
	}},
}

// brokenAdapter is the exec adapter with one fault.
type brokenAdapter struct {
	protocol.Adapter
	fault string
}

func (a brokenAdapter) Start(t *worker.Task) (worker.Session, error) {
	s, err := a.Adapter.Start(t)
	if err != nil {
		return nil, err
	}
	b := &broken{Session: s, fault: a.fault, command: s.Command()}
	if f := faults[a.fault].start; f != nil {
		err = f(t, b)
	}
	return b, err
}

type broken struct {
	worker.Session
	fault   string
	command worker.Command
	last    []byte
}

func (b *broken) Command() worker.Command { return b.command }

func (b *broken) Step(now time.Time, in worker.Input) []worker.Action {
	actions := b.Session.Step(now, in)
	switch in := in.(type) {
	case worker.Output:
		b.last = in.Line
		if f := faults[b.fault].event; f != nil {
			actions = append(actions, worker.Events(f(b, in.Line, nil)...)...)
		}
	case worker.Ended:
		if b.fault == "no result" {
			return nil
		}
		for i, a := range actions {
			if f := faults[b.fault].end; f != nil {
				actions[i] = worker.Finish{Result: f(b, in.Exit, a.(worker.Finish).Result)}
			}
		}
	case worker.Message:
		if b.fault == "ends on a message" {
			return []worker.Action{worker.Finish{}}
		}
	}
	return actions
}

// faultVariable names, in a child of this test, the fault that it has.
const faultVariable = "WORKERTEST_FAULT"

// TestSuiteNotices runs the suite in a child of this process on an adapter
// with each fault, and once on one without.
func TestSuiteNotices(t *testing.T) {
	run := func(t *testing.T, fault, part string) (string, error) {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$/^"+part+"$", "-test.v")
		child.Env = append(os.Environ(), faultVariable+"="+fault, "HOME="+t.TempDir())
		out, err := child.CombinedOutput()
		return string(out), err
	}
	t.Run("none", func(t *testing.T) {
		if out, err := run(t, "none", ".*"); err != nil {
			t.Errorf("the suite fails on a sound adapter:\n%s", out)
		}
	})
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, name, fault.part)
			if err == nil || !strings.Contains(out, "--- FAIL: TestBroken/"+fault.part) {
				t.Errorf("%s did not notice:\n%s", fault.part, out)
			}
		})
	}
}

func TestBroken(t *testing.T) {
	fault := os.Getenv(faultVariable)
	if fault == "" {
		t.Skip("runs as a child of TestSuiteNotices")
	}
	workertest.Run(t, workertest.Config{
		Adapter: brokenAdapter{fault: fault}, Kind: "broken",
		Settings:    job.WorkerSettings{Command: []string{"/bin/sh"}},
		Transcripts: "testdata",
		Want:        map[string]workertest.Want{"completed": {Answer: "done", Tokens: 12}},
	})
}
