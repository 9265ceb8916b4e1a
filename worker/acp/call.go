package acp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// call is a tool call that has not ended, as far as it is known.
type call struct {
	id      string
	kind    string // execute, edit, read, …
	title   string
	tool    string // its name, where the agent tells one
	command string
	begun   bool   // its start was told, of a command
	paths   []path // that it changes
	diff    string // the last that was told
	input   json.RawMessage
	output  string
}

// path is a file that a tool call changes.
type path struct {
	name    string
	created bool
}

// toolUpdate is what is told of a tool call at once; what is left out stays as it was.
type toolUpdate struct {
	ToolCallID, Kind, Title, Status, Name string
	Content                               []struct {
		Type, Path string
		Content    block
		OldText    *string
		NewText    string
	}
	Locations []struct{ Path string }
	RawInput  json.RawMessage
	RawOutput json.RawMessage
	Meta      struct {
		ToolName     string // qwen-code
		ClaudeCode   struct{ ToolName string }
		TerminalExit *struct { // of codex-acp
			ExitCode *int `json:"exit_code"`
		} `json:"terminal_exit"`
	} `json:"_meta"`
}

// maxInput bounds what is kept of a call's arguments and of a diff, in bytes.
const maxInput = 64 << 10

// toolCall takes what is told of a tool call. An update of one that is not known is of one
// that has ended, unless it begins one.
func (s *session) toolCall(raw json.RawMessage, begins bool) {
	var u toolUpdate
	if !agentcli.Decode(raw, &u) {
		return
	}
	c := s.known(u, begins)
	if c == nil {
		return
	}
	s.beginCall(c)
	if u.Status == "completed" || u.Status == "failed" {
		delete(s.calls, c.id)
		s.endCall(c, u)
	}
}

// known returns the call that u is of, brought up to date; nil if there is none.
func (s *session) known(u toolUpdate, begins bool) *call {
	c := s.calls[u.ToolCallID]
	if c == nil {
		if !begins || len(s.calls) >= maxCalls || len(u.ToolCallID) > 1000 {
			return nil
		}
		c = &call{id: u.ToolCallID}
		s.calls[c.id] = c
	}
	c.kind, c.title = cmp.Or(u.Kind, c.kind, "other"), cmp.Or(u.Title, c.title)
	c.tool = cmp.Or(u.Name, u.Meta.ToolName, u.Meta.ClaudeCode.ToolName, c.tool)
	if len(u.RawInput) > 0 {
		c.input = input(u.RawInput)
		c.command = cmp.Or(commandLine(u.RawInput), c.command)
	}
	var text strings.Builder
	for _, part := range u.Content {
		switch part.Type {
		case "diff":
			c.changes(path{part.Path, part.OldText == nil || *part.OldText == ""})
			old := ""
			if part.OldText != nil {
				old = *part.OldText
			}
			c.diff = diff(part.Path, old, part.NewText)
		case "content":
			text.WriteString(part.Content.Text[:min(len(part.Content.Text), maxMessage-text.Len())])
		}
	}
	c.output = cmp.Or(text.String(), c.output)
	if c.changesFiles() && len(c.paths) == 0 {
		for _, l := range u.Locations {
			c.changes(path{name: l.Path})
		}
	}
	return c
}

func (c *call) changesFiles() bool {
	return c.kind == "edit" || c.kind == "delete" || c.kind == "move"
}

// changes takes note of a file that the call changes; what is told last of it counts.
func (c *call) changes(p path) {
	if p.name == "" || len(p.name) > 4096 {
		return
	}
	for i := range c.paths {
		if c.paths[i].name == p.name {
			c.paths[i] = p
			return
		}
	}
	if len(c.paths) < maxCalls {
		c.paths = append(c.paths, p)
	}
}

// beginCall tells the start of a command, once it is known what is run.
func (s *session) beginCall(c *call) {
	if c.kind == "execute" && c.command != "" && !c.begun {
		c.begun = true
		s.emit(job.Event{Kind: job.EventCommand, CallID: c.id, Command: c.command})
	}
}

// endCall tells the end of a call.
func (s *session) endCall(c *call, u toolUpdate) {
	failed := u.Status == "failed"
	code := 0
	if failed {
		code = 1
	}
	switch {
	case c.kind == "execute":
		if n, ok := exitCode(u); ok {
			code = n
		}
		e := job.Event{Kind: job.EventCommand, CallID: c.id, Command: cmp.Or(c.command, c.title), ExitCode: &code}
		s.emit(agentcli.WithText(e, strings.ToValidUTF8(cmp.Or(outputOf(u.RawOutput), c.output), "\uFFFD")))
	case c.changesFiles() && !failed && len(c.paths) > 0:
		for _, p := range c.paths {
			s.changed(c.kind, p)
		}
	default:
		e := job.Event{Kind: job.EventTool, CallID: c.id, Tool: cmp.Or(c.tool, c.kind)}
		if failed {
			e.ExitCode = &code
		}
		s.emit(agentcli.WithText(e, c.title))
	}
	s.emit(job.Event{Kind: job.EventStep})
}

// changed tells that a file was changed, unless it was told when we wrote it.
func (s *session) changed(kind string, p path) {
	name := s.Relative(p.name)
	if s.wrote[name] {
		delete(s.wrote, name)
		return
	}
	change := "modified"
	switch {
	case kind == "delete":
		change = "deleted"
	case p.created:
		change = "added"
	}
	s.emit(job.Event{Kind: job.EventFile, Path: name, Change: change})
}

// forget drops the calls that a turn has left without an end. A command among them has
// ended with the turn, and nobody knows how.
func (s *session) forget() {
	for _, id := range slices.Sorted(maps.Keys(s.calls)) {
		if c := s.calls[id]; c.begun {
			unknown := -1
			s.emit(job.Event{Kind: job.EventCommand, CallID: id, Command: c.command, ExitCode: &unknown})
		}
	}
	clear(s.calls)
}

// input returns a call's arguments without what differs each time; nil if they are too
// many to keep.
func input(raw json.RawMessage) json.RawMessage {
	if len(raw) > maxInput {
		return nil
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(raw, &args) != nil || args == nil {
		return bytes.Clone(raw)
	}
	for _, volatile := range []string{"callId", "call_id", "toolCallId", "itemId", "threadId", "turnId", "startedAtMs", "approvalId"} {
		delete(args, volatile)
	}
	data, err := json.Marshal(args)
	if err != nil {
		return nil
	}
	return data
}

// exitCode returns what a command has exited with, where the agent tells it.
func exitCode(u toolUpdate) (int, bool) {
	var out struct {
		ExitCode  *int
		ExitCode2 *int `json:"exit_code"`
		Metadata  struct{ Exit *int }
	}
	agentcli.Decode(u.RawOutput, &out)
	all := []*int{out.ExitCode, out.ExitCode2, out.Metadata.Exit}
	if t := u.Meta.TerminalExit; t != nil {
		all = append(all, t.ExitCode)
	}
	if code := cmp.Or(all...); code != nil {
		return *code, true
	}
	return 0, false
}

// outputOf returns what a command has printed, where the agent tells it apart from what it
// tells its user.
func outputOf(raw json.RawMessage) string {
	var text string
	if agentcli.Decode(raw, &text) && text != "" {
		return text
	}
	var out struct {
		Output           string
		AggregatedOutput string `json:"aggregated_output"`
	}
	agentcli.Decode(raw, &out)
	return cmp.Or(out.Output, out.AggregatedOutput)
}

// diff returns what a person is shown of a change: all old lines, then all new ones.
func diff(name, old, new string) string {
	var b strings.Builder
	b.WriteString("--- " + name + "\n+++ " + name + "\n")
	for _, part := range []struct{ sign, text string }{{"-", old}, {"+", new}} {
		text, _ := job.Cut(part.text, maxInput/2)
		for l := range strings.Lines(text) {
			b.WriteString(part.sign + strings.TrimSuffix(l, "\n") + "\n")
		}
	}
	return b.String()
}
