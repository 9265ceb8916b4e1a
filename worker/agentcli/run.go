package agentcli

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Run is the part of a session that all programs have in common. It is embedded.
type Run struct {
	Process worker.Command
	Now     time.Time // of the input that is being read
	Resume  string    // the program's session to resume; "" if there is none, or it is lost

	folders []string       // the workspace, and where its links lead
	pending []job.Event    // to be told with the first line
	verdict *worker.Result // of a run that is decided before its end
	judged  bool           // by its version: see RunsOn
}

// NewRun returns the common part of a run of t. recorded reports whether the
// private folder holds the session that t asks for, which the program calls
// noun.
func NewRun(t *worker.Task, noun string, recorded func(id string) bool) Run {
	r := Run{folders: Folders(t)}
	switch {
	case t.Session == "":
	case recorded(t.Session):
		r.Resume = t.Session
	default:
		r.pending = append(r.pending, job.Event{Kind: job.EventWarning,
			Text: noun + " " + t.Session + " no longer exists: starting a new one"})
	}
	return r
}

// Folders returns the task's folder, and where its links lead if that is another.
func Folders(t *worker.Task) []string {
	folders := []string{t.Dir}
	if real, err := filepath.EvalSymlinks(t.Dir); err == nil && real != t.Dir {
		folders = append(folders, real)
	}
	return folders
}

// HasSession returns why a person cannot go on with the session that t asks for, which the program calls noun; nil if they
// can. recorded reports whether the private folder holds it.
func HasSession(t *worker.Task, noun string, recorded func(id string) bool) error {
	if Plain(t.Session) && recorded(t.Session) {
		return nil
	}
	return &worker.Failure{Class: job.Config, Message: noun + " " + t.Session + " is not there to go on with", Hint: "hand the job back: its next attempt begins a new one"}
}

// Plain reports whether a session's id is a plain word, which has no meaning in a pattern or a path.
func Plain(id string) bool {
	return id != "" && len(id) <= 200 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// Command is worker.Session's.
func (r *Run) Command() worker.Command { return r.Process }

// Read is the Step of a session that says nothing to its program while it runs:
// line and errorLine read what the program prints, result how it ended.
func (r *Run) Read(now time.Time, in worker.Input, line func([]byte) []job.Event, errorLine func([]byte) []worker.Action,
	result func(worker.Exit) worker.Result) []worker.Action {
	r.Now = now
	undecided := r.verdict == nil
	var actions []worker.Action
	switch in := in.(type) {
	case worker.Output:
		events := append(r.pending, line(in.Line)...)
		r.pending = nil
		actions = worker.Events(events...)
	case worker.ErrorOutput:
		actions = errorLine(in.Line)
	case worker.Ended:
		return []worker.Action{finish(result(in.Exit))}
	}
	if undecided && r.verdict != nil {
		actions = append(actions, finish(*r.verdict))
	}
	return actions
}

func finish(r worker.Result) worker.Action {
	r.Message, _ = job.Cut(r.Message, MaxMessage)
	return worker.Finish{Result: r}
}

// Decide gives the run its result before its end. The first counts.
func (r *Run) Decide(result worker.Result) {
	if r.verdict == nil {
		r.verdict = &result
	}
}

// Decided reports whether the run has its result.
func (r *Run) Decided() bool { return r.verdict != nil }

// Relative returns path as seen from the workspace, if it lies in it.
func (r *Run) Relative(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	for _, dir := range r.folders {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return path
}

// Decode fills v from a line of JSON. A field of another type than is known does
// not spoil the others: programs change.
func Decode(line []byte, v any) bool {
	err := json.Unmarshal(line, v)
	var odd *json.UnmarshalTypeError
	return err == nil || errors.As(err, &odd)
}

// WithText returns e with text, cut to what an event may carry.
func WithText(e job.Event, text string) job.Event {
	e.Text, e.Truncated = job.Cut(text, job.MaxEventText)
	return e
}

// PlainText leaves out the escape sequences of a terminal.
func PlainText(s string) string {
	if strings.IndexByte(s, 0x1b) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != 0x1b {
			b.WriteByte(s[i])
			continue
		}
		for i++; i < len(s) && (s[i] < '@' || s[i] > '~' || s[i] == '['); i++ {
		}
	}
	return b.String()
}

// LastLines returns the last n lines of text that say something. noise, if
// not nil, reports the lines that do not, besides empty ones; it sees them without
// escape sequences and surrounding space.
func LastLines(text string, n int, noise func(line string) bool) string {
	var kept []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(PlainText(l)); l != "" && (noise == nil || !noise(l)) {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept[max(0, len(kept)-n):], "\n")
}
