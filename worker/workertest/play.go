package workertest

import (
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Played is a session that a test feeds line by line, at Now.
type Played struct {
	worker.Session
	verdict *worker.Result
}

// Play returns s for a test to feed.
func Play(s worker.Session) *Played { return &Played{Session: s} }

// Event returns the events of a line of standard output.
func (p *Played) Event(line []byte) []job.Event {
	return p.events(worker.Output{Line: line})
}

// ErrorLine returns the events of a line of standard error.
func (p *Played) ErrorLine(line []byte) []job.Event {
	return p.events(worker.ErrorOutput{Line: line})
}

func (p *Played) events(in worker.Input) (events []job.Event) {
	for _, a := range p.Step(Now, in) {
		switch a := a.(type) {
		case worker.Emit:
			events = append(events, a.Event)
		case worker.Finish:
			if p.verdict == nil {
				p.verdict = &a.Result
			}
		}
	}
	return events
}

// Verdict returns the first result that was given before the end, if there was one.
func (p *Played) Verdict() (r worker.Result, decided bool) {
	if p.verdict == nil {
		return r, false
	}
	return *p.verdict, true
}

// Result ends the run.
func (p *Played) Result(e worker.Exit) worker.Result {
	for _, a := range p.Step(Now, worker.Ended{Exit: e}) {
		if f, ok := a.(worker.Finish); ok {
			return f.Result
		}
	}
	panic("no result")
}

// OddLines checks the kinds of the events, separated by spaces, that a fresh
// session makes of each line.
func OddLines(t *testing.T, start func(t *testing.T) worker.Session, want map[string]string) {
	t.Helper()
	for line, want := range want {
		var kinds []string
		for _, e := range Play(start(t)).Event([]byte(line)) {
			kinds = append(kinds, string(e.Kind))
		}
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// End is a way in which a run ends, and what it amounts to.
type End struct {
	Name  string
	Lines []string // of standard output
	Exit  worker.Exit

	Class job.ErrorClass
	Says  string // a part of the message
	After time.Duration
	At    time.Time
}

// Ends checks what fresh sessions make of each end.
func Ends(t *testing.T, start func(t *testing.T) worker.Session, ends []End) {
	t.Helper()
	for _, c := range ends {
		s := Play(start(t))
		for _, l := range c.Lines {
			s.Event([]byte(l))
		}
		r := s.Result(c.Exit)
		if r.Class != c.Class || !strings.Contains(r.Message, c.Says) || (c.Class == job.NoError) != (r.Message == "") {
			t.Errorf("%s: %+v", c.Name, r)
		}
		CheckRetry(t, c.Name, r.RetryAt, c.After, c.At)
	}
}

// CheckRetry checks when to come back; got is nil where neither is wanted.
func CheckRetry(t *testing.T, name string, got *worker.RetryAfter, after time.Duration, at time.Time) {
	t.Helper()
	if got == nil {
		got = &worker.RetryAfter{}
	}
	if got.After != after || !got.At.Equal(at) {
		t.Errorf("%s: retry %+v, want %s or %s", name, *got, after, at)
	}
}
