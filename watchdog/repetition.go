package watchdog

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Repetition watches the tool calls of one run for an agent that goes in
// circles: the same call with the same result, again and again, and no other
// call in between. It belongs to one goroutine at a time.
//
// A call is its tool, command and path; its result is the exit code and the
// output. What the agent says, uses or logs in between does not matter, since
// an agent that goes in circles may well talk about it. A call whose result
// the program does not tell can be a step forward, so it ends the row: reading
// a long file in ten pieces is no circle, though each piece is asked for in
// the same words.
type Repetition struct {
	limit int

	call, result digest // of the row
	count        int    // length of the row; 0: none

	open []openCall // tool calls that have begun, oldest first; at most maxOpen
}

type digest [16]byte

type openCall struct {
	id    string
	call  digest
	words string
}

const (
	// maxOpen bounds the calls that may be under way at once; the oldest is
	// forgotten first.
	maxOpen = 64
	// maxShown is how many bytes of a call go into the evidence.
	maxShown = 200
)

// NewRepetition returns a watch that finds limit like calls in a row; 0 finds nothing.
func NewRepetition(limit int) *Repetition { return &Repetition{limit: limit} }

// Observe takes the run's next event, in their order, and reports whether the
// run should be stopped.
func (r *Repetition) Observe(e job.Event) (Finding, bool) {
	if r.limit <= 0 {
		return Finding{}, false
	}
	switch {
	case e.Kind == job.EventTool:
		return r.tool(e)
	case e.Kind == job.EventCommand && e.ExitCode != nil: // it counts when it ends
		return r.told(callOf(e, ""), words(e, ""), resultOf(e))
	case e.Kind == job.EventFile:
		r.count = 0 // what was written is not told
	}
	return Finding{}, false
}

// tool takes the beginning of a tool call, where Text says what is asked for,
// or its end, where Text says what came of it. An end is known by its exit
// code, or by the CallID of a call that is under way.
func (r *Repetition) tool(e job.Event) (Finding, bool) {
	for i, o := range r.open {
		if e.CallID != "" && o.id == e.CallID {
			r.open = append(r.open[:i], r.open[i+1:]...)
			return r.told(o.call, o.words, resultOf(e))
		}
	}
	if e.ExitCode != nil {
		return r.told(callOf(e, ""), words(e, ""), resultOf(e))
	}
	call := callOf(e, e.Text)
	if call != r.call {
		r.count = 0
	}
	if e.CallID != "" {
		if len(r.open) == maxOpen {
			r.open = append(r.open[:0], r.open[1:]...)
		}
		r.open = append(r.open, openCall{e.CallID, call, words(e, e.Text)})
	}
	return Finding{}, false
}

// told counts a call whose result is known.
func (r *Repetition) told(call digest, words string, result digest) (Finding, bool) {
	if r.count == 0 || call != r.call || result != r.result {
		r.call, r.result, r.count = call, result, 0
	}
	r.count++
	if r.count < r.limit {
		return Finding{}, false
	}
	return Finding{Class: job.Stalled, Evidence: fmt.Sprintf(
		"the agent made the same call %d times in a row, with the same result each time: %s", r.count, words)}, true
}

// callOf digests what was asked for. The kind keeps a command and a tool of
// one name apart.
func callOf(e job.Event, asked string) digest {
	return digestOf(string(e.Kind), e.Tool, squeeze(e.Command), cleaned(e.Path), squeeze(asked))
}

// resultOf digests what came of it.
func resultOf(e job.Event) digest {
	code := "none"
	if e.ExitCode != nil {
		code = fmt.Sprint(*e.ExitCode)
	}
	return digestOf(code, fmt.Sprint(e.Truncated), e.Text)
}

// digestOf digests a list of strings, each behind its length, so that no two
// lists read alike.
func digestOf(parts ...string) digest {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		io.WriteString(h, p)
	}
	var d digest
	copy(d[:], h.Sum(nil))
	return d
}

// squeeze makes every run of white space one space: agents wrap and indent the
// same command differently.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

func cleaned(p string) string {
	if p == "" {
		return ""
	}
	return path.Clean(p)
}

// words shows a call to the user.
func words(e job.Event, asked string) string {
	text := squeeze(strings.Join([]string{e.Tool, e.Command, e.Path, asked}, " "))
	text, _ = job.Cut(text, maxShown)
	return fmt.Sprintf("%q", text)
}
