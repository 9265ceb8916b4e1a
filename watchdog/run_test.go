package watchdog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
)

func TestRunTranscripts(t *testing.T) {
	transcripts(t, "run", func() player {
		cfg := Default()
		return &runPlayer{stall: NewStall(cfg.Stall, midnight), repeat: NewRepetition(3)}
	})
}

// runPlayer is one run: the CPU time that its processes have used stays as the
// last line set it.
type runPlayer struct {
	stall  *Stall
	repeat *Repetition
	cpu    time.Duration
}

func (p *runPlayer) play(t *testing.T, now time.Time, verb string, w lineWords) []string {
	rest := strings.Join(w.plain, " ")
	finding := func(f Finding, found bool) []string {
		if !found {
			return []string{"goes on"}
		}
		return []string{fmt.Sprintf("stop as %s: %s", f.Class, f.Evidence)}
	}
	switch verb {
	case "output":
		p.stall.Output(now)
		return nil
	case "check":
		if d, ok := w.duration("cpu"); ok {
			p.cpu = d
		}
		return finding(p.stall.Check(now, func() (time.Duration, error) {
			if rest == "unknown" {
				return 0, errors.New("not known")
			}
			return p.cpu, nil
		}))
	case "command", "tool", "file", "text", "usage", "log", "step":
		e := job.Event{Kind: job.EventKind(verb)}
		e.CallID, _ = w.text("id")
		e.Path, _ = w.text("path")
		e.Text, _ = w.text("out")
		if code, ok := w.number("exit"); ok {
			n := int(code)
			e.ExitCode = &n
		}
		switch verb {
		case "command":
			e.Command = strings.ReplaceAll(rest, "~", "  ") // a line's words have one space between them
		case "tool":
			e.Tool = rest
		}
		return finding(p.repeat.Observe(e))
	}
	t.Fatalf("no verb %q", verb)
	return nil
}

// Whatever the order of events, a run is stopped exactly when the last calls
// that were told are like each other, by a naive look at the whole history.
func TestRepetitionAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 3
		r := NewRepetition(limit)
		var calls []string // "" for a call whose result is not told
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			e := job.Event{Kind: rapid.SampledFrom([]job.EventKind{
				job.EventCommand, job.EventCommand, job.EventCommand, job.EventText, job.EventUsage, job.EventLog, job.EventFile,
			}).Draw(t, "kind")}
			switch e.Kind {
			case job.EventCommand:
				code := rapid.IntRange(0, 1).Draw(t, "exit")
				e.Command, e.Text = rapid.SampledFrom([]string{"ls", "go test"}).Draw(t, "command"), rapid.SampledFrom([]string{"", "x"}).Draw(t, "out")
				if rapid.IntRange(0, 4).Draw(t, "ended") > 0 {
					e.ExitCode = &code
					calls = append(calls, fmt.Sprint(e.Command, code, e.Text))
				}
			case job.EventFile:
				e.Path = "a"
				calls = append(calls, "")
			}
			_, found := r.Observe(e)
			tail := calls[max(0, len(calls)-limit):]
			want := len(tail) == limit && tail[0] != "" && len(slices.Compact(slices.Clone(tail))) == 1
			// A finding comes with the call that completes the row, not with what follows.
			want = want && e.Kind == job.EventCommand && e.ExitCode != nil
			if found != want {
				t.Fatalf("after %q found is %t, want %t", calls, found, want)
			}
		}
	})
}

// Memory does not grow with the calls that never end.
func TestRepetitionForgetsOpenCalls(t *testing.T) {
	r := NewRepetition(2)
	for n := range 100 {
		r.Observe(job.Event{Kind: job.EventTool, CallID: fmt.Sprint(n), Tool: "Read", Text: "a"})
	}
	code := 1
	// The first is forgotten, so its end tells of a call that is not known; the last is known.
	for _, tt := range []struct {
		id    string
		found bool
	}{{"98", false}, {"99", true}} {
		if _, found := r.Observe(job.Event{Kind: job.EventTool, CallID: tt.id, Tool: "Read", Text: "no such file", ExitCode: &code}); found != tt.found {
			t.Errorf("end of call %s: found %t, want %t", tt.id, found, tt.found)
		}
	}
	if _, found := r.Observe(job.Event{Kind: job.EventTool, CallID: "0", Tool: "Read", Text: "no such file", ExitCode: &code}); found {
		t.Error("the first of 100 open calls was remembered")
	}
}

func TestNothingIsFoundWhenSwitchedOff(t *testing.T) {
	code := 0
	r := NewRepetition(0)
	s := NewStall(StallConfig{}, midnight)
	for n := range 100 {
		if f, found := r.Observe(job.Event{Kind: job.EventCommand, Command: "ls", ExitCode: &code}); found {
			t.Fatal(f)
		}
		f, found := s.Check(midnight.Add(time.Duration(n)*time.Hour), func() (time.Duration, error) { return 0, nil })
		if found {
			t.Fatal(f)
		}
	}
}
