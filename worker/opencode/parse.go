package opencode

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// session is one run of opencode.
type session struct {
	agentcli.Run

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

func newSession(t *worker.Task, h home) *session {
	return &session{Run: agentcli.NewRun(t, "session", h.hasSession)}
}

// Step reads what the program prints. Nothing is said to it: it ends at once on
// SIGINT, and the commands that it leaves running are the Runner's to end.
func (s *session) Step(now time.Time, in worker.Input) []worker.Action {
	return s.Read(now, in, s.parse, s.errorLine, s.result)
}

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

func (s *session) parse(raw []byte) []job.Event {
	var l line
	if !agentcli.Decode(raw, &l) || l.Type == "" {
		return []job.Event{agentcli.WithText(job.Event{Kind: job.EventLog}, string(raw))}
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
		s.giveUp()
	case "text":
		s.say(p)
		events = append(events, agentcli.WithText(job.Event{Kind: job.EventText}, p.Text))
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
		events = append(events, agentcli.WithText(job.Event{Kind: job.EventError}, l.Error.String()))
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
		events = append(events, agentcli.WithText(job.Event{Kind: job.EventCommand, CallID: p.CallID, Command: st.Input.Command, ExitCode: &code, Millis: millis}, text))
	case !failed && st.Input.Path != "" && (p.Tool == "edit" || p.Tool == "write"):
		change := "modified"
		if p.Tool == "write" && st.Metadata.Exists != nil && !*st.Metadata.Exists {
			change = "added"
		}
		events = append(events, job.Event{Kind: job.EventFile, CallID: p.CallID, Path: s.Relative(st.Input.Path), Change: change, Millis: millis})
	case failed:
		code := 1
		events = append(events, agentcli.WithText(job.Event{Kind: job.EventTool, CallID: p.CallID, Tool: p.Tool, Path: s.Relative(st.Input.Path), ExitCode: &code, Millis: millis}, text))
	default:
		if what == "" {
			what = st.Title
		}
		events = append(events, agentcli.WithText(job.Event{Kind: job.EventTool, CallID: p.CallID, Tool: p.Tool, Millis: millis}, what))
	}
	if failed && denied(st.Error) {
		what, _ = job.Cut(what, 200)
		events = append(events, job.Event{Kind: job.EventWarning,
			Text: fmt.Sprintf("a tool call was denied because the job does not grant it: %s(%s)", p.Tool, what)})
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
