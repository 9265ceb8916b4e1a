package opencode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// session is one run of opencode.
type session struct {
	command worker.Command
	dir     []string // the workspace, and where its links lead
	now     func() time.Time
	resume  string // session to resume; "" if there is none, or it is lost

	mu       sync.Mutex  // guards what follows: ErrorLine comes from another goroutine
	pending  []job.Event // to be told with the first line
	session  string
	open     bool   // a step was started and not finished
	finish   string // why the last step ended, e.g. "stop"
	message  string // id of the message that answer belongs to
	answer   string
	failure  *failure // the last, if nothing came after it
	sawEvent bool
	tries    int // steps begun since one was finished
	requests requests
}

func newSession(t *worker.Task, h home, now func() time.Time) *session {
	s := &session{now: now, dir: []string{t.Dir}}
	if real, err := filepath.EvalSymlinks(t.Dir); err == nil && real != t.Dir {
		s.dir = append(s.dir, real)
	}
	switch {
	case t.Session == "":
	case h.hasSession(t.Session):
		s.resume = t.Session
	default:
		s.pending = append(s.pending, job.Event{Kind: job.EventWarning,
			Text: "session " + t.Session + " is not recorded any more: starting a new one"})
	}
	return s
}

// Command returns the process to start.
func (s *session) Command() worker.Command { return s.command }

// Cancel does nothing: opencode ends at once on SIGINT; the commands that it
// leaves running are the runner's to end.
func (s *session) Cancel(io.Writer) error { return nil }

// line is what the program prints, one JSON object a line.
type line struct {
	Type    string  `json:"type"`
	Session string  `json:"sessionID"`
	Part    part    `json:"part"`
	Error   failure `json:"error"`
}

type part struct {
	Message string  `json:"messageID"`
	Text    string  `json:"text"`
	Tool    string  `json:"tool"`
	CallID  string  `json:"callID"`
	State   state   `json:"state"`
	Reason  string  `json:"reason"`
	Tokens  tokens  `json:"tokens"`
	Cost    float64 `json:"cost"`
}

type state struct {
	Status string `json:"status"` // completed or error
	Input  struct {
		Command string `json:"command"`
		Path    string `json:"filePath"`
		Pattern string `json:"pattern"`
		URL     string `json:"url"`
		Query   string `json:"query"`
	} `json:"input"`
	Output   string `json:"output"`
	Error    string `json:"error"`
	Title    string `json:"title"`
	Metadata struct {
		Exit   *int  `json:"exit"`
		Exists *bool `json:"exists"` // of a written file: before
	} `json:"metadata"`
	Time struct {
		Start int64 `json:"start"` // milliseconds since 1970
		End   int64 `json:"end"`
	} `json:"time"`
}

// tokens are those of one step; input excludes cached ones.
type tokens struct {
	Total     int64 `json:"total"`
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	Reasoning int64 `json:"reasoning"`
	Cache     struct {
		Read  int64 `json:"read"`
		Write int64 `json:"write"`
	} `json:"cache"`
}

// failure is what the program knows of an error.
type failure struct {
	Name string `json:"name"`
	Data struct {
		Message  string            `json:"message"`
		Status   int               `json:"statusCode"`
		Headers  map[string]string `json:"responseHeaders"`
		Body     string            `json:"responseBody"`
		Provider string            `json:"providerID"`
	} `json:"data"`
}

// Event returns what a line means.
func (s *session) Event(raw []byte) []job.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := append(s.pending, s.parse(raw)...)
	s.pending = nil
	return events
}

func (s *session) parse(raw []byte) []job.Event {
	var l line
	if err := json.Unmarshal(raw, &l); err != nil {
		// A field of another type than we know does not spoil the others.
		var odd *json.UnmarshalTypeError
		if !errors.As(err, &odd) {
			l.Type = ""
		}
	}
	if l.Type == "" {
		return []job.Event{withText(job.Event{Kind: job.EventLog}, string(raw))}
	}
	s.sawEvent = true
	var events []job.Event
	if l.Session != "" && l.Session != s.session {
		s.session = l.Session
		events = append(events, job.Event{Kind: job.EventSession, Session: l.Session})
	}
	p := l.Part
	switch l.Type {
	case "step_start":
		if s.open {
			events = append(events, job.Event{Kind: job.EventRetry, Text: "opencode repeats a request that was cut off"})
		}
		s.open, s.finish, s.failure = true, "", nil
		s.tries++
		s.requests.failed = 0
	case "text":
		s.say(p)
		events = append(events, withText(job.Event{Kind: job.EventText}, p.Text))
	case "tool_use":
		events = append(events, s.tool(p)...)
	case "step_finish":
		s.open, s.finish = false, p.Reason
		events = append(events, job.Event{Kind: job.EventStep})
		if p.Reason != "unknown" {
			s.tries = 0
		} else { // it goes on so without end or pause, if the provider does
			events = append(events, job.Event{Kind: job.EventRetry, Text: "the provider's answer broke off: opencode asks again"})
		}
		if u := p.usage(); u.Tokens() > 0 || u.CostUSD > 0 {
			events = append(events, job.Event{Kind: job.EventUsage, Usage: &u})
		}
	case "error":
		s.failure = &l.Error
		events = append(events, withText(job.Event{Kind: job.EventError}, l.Error.String()))
	}
	return events
}

// say keeps what the last message says.
func (s *session) say(p part) {
	if p.Message == s.message && s.answer != "" {
		s.answer += "\n" + p.Text
	} else {
		s.answer = p.Text
	}
	s.message = p.Message
	s.answer, _ = job.Cut(s.answer, job.MaxEventText)
}

// tool tells a tool call, which is printed once, when it has ended.
func (s *session) tool(p part) []job.Event {
	st := p.State
	millis := int64(0)
	if st.Time.Start > 0 && st.Time.End > st.Time.Start {
		millis = st.Time.End - st.Time.Start
	}
	text := st.Output
	failed := st.Status != "completed"
	if failed {
		text = st.Error
	}
	var events []job.Event
	what := st.Input.Command + st.Input.Path + st.Input.Pattern + st.Input.URL + st.Input.Query
	switch {
	case p.Tool == "bash":
		code := -1 // it never ran, or was ended
		if st.Metadata.Exit != nil {
			code = *st.Metadata.Exit
		}
		events = append(events, withText(job.Event{Kind: job.EventCommand, CallID: p.CallID, Command: st.Input.Command, ExitCode: &code, Millis: millis}, text))
	case !failed && st.Input.Path != "" && (p.Tool == "edit" || p.Tool == "write"):
		change := "modified"
		if p.Tool == "write" && st.Metadata.Exists != nil && !*st.Metadata.Exists {
			change = "added"
		}
		events = append(events, job.Event{Kind: job.EventFile, CallID: p.CallID, Path: s.relative(st.Input.Path), Change: change, Millis: millis})
	case failed:
		code := 1
		events = append(events, withText(job.Event{Kind: job.EventTool, CallID: p.CallID, Tool: p.Tool, Path: s.relative(st.Input.Path), ExitCode: &code, Millis: millis}, text))
	default:
		if what == "" {
			what = st.Title
		}
		events = append(events, withText(job.Event{Kind: job.EventTool, CallID: p.CallID, Tool: p.Tool, Millis: millis}, what))
	}
	if failed && denied(st.Error) {
		what, _ = job.Cut(what, 200)
		events = append(events, job.Event{Kind: job.EventWarning,
			Text: fmt.Sprintf("a tool call was denied, since the job does not grant it: %s(%s)", p.Tool, what)})
	}
	return events
}

// denied recognises the refusal of a call by a permission rule.
func denied(message string) bool {
	return strings.Contains(message, "specified a rule which prevents") || strings.Contains(message, "rejected permission")
}

// usage returns the step's usage. A price of 0 for tokens means that the
// program does not know the model's. Whether output includes reasoning depends
// on the provider; the total tells.
func (p part) usage() job.Usage {
	t := p.Tokens
	input := t.Input + t.Cache.Read + t.Cache.Write
	output := max(t.Output, t.Total-input, t.Reasoning)
	return job.Usage{
		InputTokens: input, CachedTokens: t.Cache.Read, CacheWriteTokens: t.Cache.Write,
		OutputTokens: output, ReasoningTokens: t.Reasoning,
		CostUSD: p.Cost, CostKnown: p.Cost > 0,
	}
}

// relative returns path as seen from the workspace, if it lies in it.
func (s *session) relative(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	for _, dir := range s.dir {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return path
}

// withText returns e with text, cut to what an event may carry.
func withText(e job.Event, text string) job.Event {
	e.Text, e.Truncated = job.Cut(text, job.MaxEventText)
	return e
}
