package worker

import (
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Redactor takes secrets out of text. It is used for all that leaves the run: events,
// logs and the outcome. Sessions see what the program printed, secrets included, since
// a protocol's lines must stay what they are.
type Redactor interface {
	// String returns a text without its secrets.
	String(text string) string
	// Lines returns a function that does so with the lines of one text, in their
	// order and without their ends. What that returns may be the line itself.
	Lines() func(line []byte) []byte
}

// unredacted is the Redactor that changes nothing.
type unredacted struct{}

func (unredacted) String(text string) string       { return text }
func (unredacted) Lines() func(line []byte) []byte { return func(line []byte) []byte { return line } }

// redact takes the secrets out of an event, before any of it is cut. Names by
// which events are joined stay: those of calls, sessions and durable steps.
func (r *recorder) redact(e *job.Event) {
	clean := r.run.Redact
	switch {
	case e.Text == "":
	case (e.Kind == job.EventText || e.Kind == job.EventLog) && strings.IndexByte(e.Text, '\n') < 0:
		// A secret of many lines, such as a private key, comes line by line.
		r.scratch = append(r.scratch[:0], e.Text...)
		if line := r.words(r.scratch); len(line) == 0 || &line[0] != &r.scratch[0] {
			e.Text = string(line)
		}
	default:
		e.Text = clean.String(e.Text)
	}
	e.Command = clean.String(e.Command)
	e.Path = clean.String(e.Path)
	e.Tool = clean.String(e.Tool)
	if e.Kept == "" {
		e.Step = clean.String(e.Step)
	}
}
