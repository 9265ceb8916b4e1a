package opencode

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// call is a tool call that has not ended.
type call struct {
	id, session string
	tool        string
	input       toolInput
	began       bool // its beginning was told
	replied     bool // it is refused
}

type toolState struct {
	Status   string          `json:"status"` // pending, running, completed or error
	Input    toolInput       `json:"input"`
	Output   string          `json:"output"`
	Error    string          `json:"error"`
	Title    string          `json:"title"`
	Metadata json.RawMessage `json:"metadata"` // not there before the tool does something
	Time     struct {
		Start int64 `json:"start"` // milliseconds since 1970
		End   int64 `json:"end"`
	} `json:"time"`
}

type toolInput struct {
	Command     string `json:"command"`
	Path        string `json:"filePath"`
	Folder      string `json:"path"`
	Pattern     string `json:"pattern"`
	URL         string `json:"url"`
	Query       string `json:"query"`
	Description string `json:"description"`
	Agent       string `json:"subagent_type"`
}

type toolMetadata struct {
	Exit    *int   `json:"exit"`
	Exists  *bool  `json:"exists"`    // of a written file: before
	Session string `json:"sessionId"` // of a subagent
}

// tool reads a tool call.
func (s *session) tool(t *thread, p part) {
	c := s.calls[p.ID]
	switch p.State.Status {
	case "pending", "running":
		if c == nil {
			c = &call{id: p.CallID, session: t.id}
			s.calls[p.ID] = c
		}
		c.tool, c.input = p.Tool, p.State.Input
		if !c.began && len(p.State.Metadata) > 0 {
			s.toolBegins(t, c, p)
			s.rejectSoon()
		}
	case "completed", "error":
		if c == nil {
			return // it has ended before: the program shortens what it keeps of old calls
		}
		delete(s.calls, p.ID)
		s.toolEnds(t, p)
		s.rejectSoon()
	}
}

// toolBegins tells that a command or a subagent runs. While the program waits for a permission it says nothing of what
// the tool does.
func (s *session) toolBegins(t *thread, c *call, p part) {
	c.began = true
	switch p.Tool {
	case "bash":
		s.emit(job.Event{Kind: job.EventCommand, Parent: t.parent, CallID: p.CallID, Command: p.State.Input.Command})
	case "task":
		var m toolMetadata
		agentcli.Decode(p.State.Metadata, &m)
		if sub := s.threads[m.Session]; sub != nil && sub != s.main {
			sub.parent = p.CallID
		}
		s.emit(agentcli.WithText(job.Event{Kind: job.EventTool, Parent: t.parent, CallID: p.CallID, Tool: p.Tool}, p.what()))
	}
}

// what is what a tool is called with, in short.
func (p part) what() string {
	in := p.State.Input
	if p.Tool == "task" {
		return strings.TrimSuffix(in.Agent+": "+in.Description, ": ")
	}
	return in.Command + in.Path + in.Pattern + in.URL + in.Query
}

// toolEnds tells how a call ended.
func (s *session) toolEnds(t *thread, p part) {
	st := p.State
	var m toolMetadata
	agentcli.Decode(st.Metadata, &m)
	e := job.Event{Parent: t.parent, CallID: p.CallID}
	if st.Time.Start > 0 && st.Time.End > st.Time.Start {
		e.Millis = st.Time.End - st.Time.Start
	}
	failed, said, what := st.Status != "completed", st.Output, p.what()
	if failed {
		said = st.Error
	}
	switch {
	case p.Tool == "bash":
		code := -1 // it never ran, or was ended
		if m.Exit != nil {
			code = *m.Exit
		}
		e.Kind, e.Command, e.ExitCode = job.EventCommand, st.Input.Command, &code
		e = agentcli.WithText(e, said)
	case !failed && st.Input.Path != "" && (p.Tool == "edit" || p.Tool == "write"):
		e.Kind, e.Path, e.Change = job.EventFile, s.Relative(st.Input.Path), "modified"
		if p.Tool == "write" && m.Exists != nil && !*m.Exists {
			e.Change = "added"
		}
	case failed:
		code := 1
		e.Kind, e.Tool, e.Path, e.ExitCode = job.EventTool, p.Tool, s.Relative(st.Input.Path), &code
		e = agentcli.WithText(e, said)
	default:
		e.Kind, e.Tool = job.EventTool, p.Tool
		if what == "" {
			what = st.Title
		}
		e = agentcli.WithText(e, what)
	}
	s.emit(e)
	if failed && denied(st.Error) {
		what, _ = job.Cut(what, 200)
		call := fmt.Sprintf("%s(%s)", p.Tool, what)
		s.denied = append(s.denied, call)
		s.emit(job.Event{Kind: job.EventWarning, Parent: t.parent, Text: "a tool call was denied because the job does not grant it: " + call})
	}
}

// denied recognises the refusal of a call, by a rule or by an answer.
func denied(message string) bool {
	return strings.Contains(message, "specified a rule which prevents") || strings.Contains(message, "rejected permission")
}
