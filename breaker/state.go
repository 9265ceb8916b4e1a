package breaker

import (
	"cmp"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Key names a breaker: {"codex", ""} is that of the worker kind itself,
// {"codex", "gpt-5"} that of one model which it asks for.
type Key struct {
	Worker job.WorkerKind `json:"worker"`
	Model  string         `json:"model,omitempty"`
}

// String returns "codex" or "codex:gpt-5", as a job file writes a choice.
func (k Key) String() string {
	if k.Model == "" {
		return string(k.Worker)
	}
	return string(k.Worker) + ":" + k.Model
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Model, b.Model))
}

// Phase is what a breaker does with a question.
type Phase string

const (
	// Closed: it allows, and counts. Entered at first and when all probes succeeded.
	Closed Phase = "closed"
	// Open: it refuses until its time. Entered from Closed by too many
	// failures, from HalfOpen by one, from any by a rate limit or Trip.
	Open Phase = "open"
	// HalfOpen: it allows a few probes. Entered from Open when its time has
	// passed, which is noticed at the next request or snapshot.
	HalfOpen Phase = "half-open"
)

// State is one breaker as it stands.
type State struct {
	Key
	State Phase `json:"state"`
	// OpenUntil is when an open breaker becomes half-open; zero otherwise.
	OpenUntil time.Time `json:"open_until,omitzero"`
	// Requests counts the attempts that ended as success or failure: within the
	// window if closed, of the probes if half-open, 0 if open.
	Requests int `json:"requests"`
	Failures int `json:"failures"`
	Slow     int `json:"slow"` // successes that took too long; 0 unless closed
	// Cause says why it opened last; empty if closed.
	Cause string `json:"cause,omitempty"`
}

// String returns "codex:gpt-5 open until 2000-01-01T01:00:00Z (0 requests, 0 failures, 0 slow): cause".
func (s State) String() string {
	text := s.Key.String() + " " + string(s.State)
	if s.State == Open {
		text += " until " + s.OpenUntil.Format(time.RFC3339)
	}
	text += fmt.Sprintf(" (%d requests, %d failures, %d slow)", s.Requests, s.Failures, s.Slow)
	if s.Cause != "" {
		text += ": " + s.Cause
	}
	return text
}

// validate reports why s cannot be restored.
func (s State) validate() error {
	switch {
	case s.Worker == "":
		return fmt.Errorf("worker: is empty, want the kind that the breaker %q is for", s.Key)
	case s.State != Closed && s.State != Open && s.State != HalfOpen:
		return fmt.Errorf("state: %q of %s is unknown, want %s, %s or %s", s.State, s.Key, Closed, Open, HalfOpen)
	case s.State == Open && s.OpenUntil.IsZero():
		return fmt.Errorf("open_until: is missing, want the time until which %s is open", s.Key)
	}
	return nil
}

// Change is a move of one breaker. From and To are both Open if an open one
// stays so until a later time.
type Change struct {
	Key
	From      Phase     `json:"from"`
	To        Phase     `json:"to"`
	At        time.Time `json:"at"`
	OpenUntil time.Time `json:"open_until,omitzero"` // if To is Open
	Cause     string    `json:"cause"`
}

// String returns "codex:gpt-5 closed→open: cause".
func (c Change) String() string {
	return fmt.Sprintf("%s %s→%s: %s", c.Key, c.From, c.To, c.Cause)
}

// OpenError refuses an attempt.
type OpenError struct {
	Key   Key
	State Phase // Open, or HalfOpen with all its probes out
	// RetryAt is when to ask again: the end of the open time, or a guess if
	// probes are out, since their ends are unknown.
	RetryAt time.Time
	Cause   string // why it opened
}

// Error says which breaker refuses, until when and why.
func (e *OpenError) Error() string {
	if e.State == HalfOpen {
		return fmt.Sprintf("circuit breaker of %s is half-open, all its probes are running; ask again at %s (it opened: %s)",
			e.Key, e.RetryAt.UTC().Format(time.RFC3339), e.Cause)
	}
	return fmt.Sprintf("circuit breaker of %s is open until %s: %s", e.Key, e.RetryAt.UTC().Format(time.RFC3339), e.Cause)
}
