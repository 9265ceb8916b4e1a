package acp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// ask is a question that is open: a request of the agent that waits for a person.
type ask struct {
	request json.RawMessage // its id
	options []permissionOption
	what    string       // for Result.Denied
	paths   []path       // of a write
	file    *fileRequest // to read or write if it is allowed
	words   bool         // an elicitation
}

type permissionOption struct{ OptionID, Name, Kind string }

// option returns the id of the first option of a kind; "" if there is none.
func (a *ask) option(kinds ...string) string {
	for _, kind := range kinds {
		for _, o := range a.options {
			if o.Kind == kind {
				return o.OptionID
			}
		}
	}
	return ""
}

// permission asks whether the agent may go on with a tool call. An option that holds for
// longer than this once is not taken: the agent may keep it where the next job finds it.
func (s *session) permission(id, params json.RawMessage) {
	var p struct {
		ToolCall json.RawMessage
		Options  []permissionOption
	}
	agentcli.Decode(params, &p)
	var u toolUpdate
	agentcli.Decode(p.ToolCall, &u)
	a := &ask{request: id, options: p.Options}
	c := s.known(u, true)
	switch {
	case s.stop != notStopped || s.phase == ending:
		s.cancelled(id)
		return
	case c == nil:
		s.refuse(id, codeInvalidParams, "the tool call has no usable id, or too many are open")
		return
	case len(c.command) > maxInput || len(c.input) == 0 && len(u.RawInput) > 0:
		s.warn("long", "the agent asked about a tool call whose arguments are too long to be shown: it was told no")
		s.deny(a)
		return
	}
	s.flush()
	s.beginCall(c)
	q := s.question(c)
	a.what, a.paths = what(q), c.paths
	q.Decisions = []worker.Decision{worker.Allow, worker.Deny, worker.DenyAndStop}
	if a.option("allow_once") == "" {
		s.warn("once", "the agent has no way to be allowed something once: it is told no")
		q.Decisions = q.Decisions[1:]
	}
	s.ask(cmp.Or(u.ToolCallID, string(id)), a, q)
}

// ask puts a question. Its id is the agent's name for what it is about, if that is short
// and was not used before.
func (s *session) ask(id string, a *ask, q worker.Question) {
	for q.ID = id; len(q.ID) > 200 || s.questions[q.ID] || s.asks[q.ID] != nil; q.ID = fmt.Sprintf("ask-%d", s.asked) {
		s.asked++
	}
	if len(s.questions) < maxCalls {
		s.questions[q.ID] = true
	}
	s.asks[q.ID] = a
	s.do(worker.Ask{Question: q})
}

// question returns what is asked about a call, but for its id and decisions.
func (s *session) question(c *call) worker.Question {
	q := worker.Question{Kind: worker.AboutTool, Tool: cmp.Or(c.tool, c.kind), Input: c.input, Text: c.title}
	switch c.kind {
	case "execute":
		q.Kind, q.Command = worker.AboutCommand, cmp.Or(c.command, c.title)
		q.Text = "run " + q.Command + "?"
	case "edit", "delete", "move":
		if q.Path = s.folderOf(c.paths); q.Path != "" {
			q.Kind, q.Diff = worker.AboutWrite, c.diff
			q.Text = c.kind + " " + q.Path + "?"
		}
	case "read", "search":
		if q.Path = s.readPath(c.input); q.Path != "" {
			q.Kind, q.Text = worker.AboutRead, c.kind+" "+q.Path+"?"
		}
	case "fetch":
		if q.Host = host(c.input); q.Host != "" {
			q.Kind, q.Text = worker.AboutHost, "fetch from "+q.Host+"?"
		}
	}
	q.Text, _ = job.Cut(cmp.Or(q.Text, "use "+q.Tool+"?"), agentcli.MaxMessage)
	return q
}

// folderOf returns the only path of a call, or the folder that all are in.
func (s *session) folderOf(paths []path) string {
	if len(paths) == 0 {
		return ""
	}
	common := s.absolute(paths[0].name)
	for _, p := range paths[1:] {
		other := s.absolute(p.name)
		for common != other && !strings.HasPrefix(other, strings.TrimSuffix(common, "/")+"/") && common != "/" {
			common = filepath.Dir(common)
		}
	}
	return s.Relative(common)
}

func (s *session) absolute(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(s.task.Dir, name)
}

// readPath returns the path in the arguments of a call that reads.
func (s *session) readPath(input json.RawMessage) string {
	var args map[string]json.RawMessage
	agentcli.Decode(input, &args)
	for _, key := range []string{"path", "file_path", "filePath", "filepath", "absolute_path", "dir_path"} {
		var name string
		if json.Unmarshal(args[key], &name) == nil && name != "" && len(name) <= 4096 {
			return s.Relative(s.absolute(name))
		}
	}
	return ""
}

// host returns the host in the arguments of a call that fetches.
func host(input json.RawMessage) string {
	var args struct{ URL string }
	agentcli.Decode(input, &args)
	u, err := url.Parse(args.URL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// what names what was asked about, e.g. "execute(make deploy)".
func what(q worker.Question) string {
	text, _ := job.Cut(q.Tool+"("+cmp.Or(q.Command, q.Path, q.Host, q.Text)+")", 1<<10)
	return text
}

// elicit asks for words, or for values that a form is for.
func (s *session) elicit(id, params json.RawMessage) {
	var p struct {
		Mode, Message   string
		RequestedSchema json.RawMessage
	}
	agentcli.Decode(params, &p)
	switch {
	case s.stop != notStopped || s.phase == ending:
		s.grant(id, elicited("cancel", nil))
		return
	case p.Mode != "form" || len(p.RequestedSchema) > maxInput || !json.Valid(p.RequestedSchema):
		s.grant(id, elicited("decline", nil)) // a page to open: nobody is there who could
		return
	}
	text, _ := job.Cut(p.Message, agentcli.MaxMessage)
	s.ask("elicit-"+string(id), &ask{request: id, words: true, what: "words"}, worker.Question{Kind: worker.AboutWords, Text: text, Schema: p.RequestedSchema})
}

func elicited(action string, content json.RawMessage) any {
	return struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content,omitempty"`
	}{action, content}
}

// answered passes an answer on.
func (s *session) answered(in worker.Answer) {
	a := s.asks[in.Question]
	if a == nil {
		return
	}
	delete(s.asks, in.Question)
	switch {
	case a.words:
		switch {
		case len(in.Value) > 0:
			s.grant(a.request, elicited("accept", in.Value))
		case in.Decision == worker.Unanswered:
			s.grant(a.request, elicited("cancel", nil))
		default:
			s.grant(a.request, elicited("decline", nil))
		}
	case in.Decision.Allows() && a.file != nil:
		s.start(a.file)
	case in.Decision.Allows() && a.option("allow_once") != "":
		for _, p := range a.paths {
			if len(s.mayWrite) < maxCalls {
				s.mayWrite[s.Relative(s.absolute(p.name))] = true
			}
		}
		s.choose(a.request, a.option("allow_once"))
	case a.file != nil:
		s.note(a)
		s.refuse(a.request, codeInternal, cmp.Or(in.Text, "it was not allowed"))
	default:
		s.note(a)
		if in.Decision != worker.DenyAndStop {
			if in.Text != "" && len(s.why) < maxOpen {
				text, _ := job.Cut(in.Text, 8<<10) // several go into one prompt
				s.why = append(s.why, fmt.Sprintf("You were not allowed: %s\nThe answer: %s", a.what, text))
			}
			s.deny(a)
			break
		}
		s.cancelled(a.request)
	}
	if in.Decision == worker.DenyAndStop && s.phase == turning {
		s.stopTurn(deniedAndStopped)
	}
}

// note lists what was denied.
func (s *session) note(a *ask) {
	if len(s.denied) < job.MaxDenied {
		s.denied = append(s.denied, a.what)
	}
	s.say(job.EventWarning, "denied: "+a.what)
}

// deny tells the agent no, for this once if it knows that.
func (s *session) deny(a *ask) {
	if o := a.option("reject_once", "reject_always"); o != "" {
		s.choose(a.request, o)
		return
	}
	s.cancelled(a.request)
}

func (s *session) choose(id json.RawMessage, option string) {
	s.grant(id, acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(acp.PermissionOptionId(option))})
}

// cancelled tells the agent that its question has no answer since the turn is to stop.
func (s *session) cancelled(id json.RawMessage) {
	s.grant(id, acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()})
}

// withdraw takes all questions back, whose answers the agent gets by that.
func (s *session) withdraw() {
	for _, id := range slices.Sorted(maps.Keys(s.asks)) {
		a := s.asks[id]
		s.do(worker.Withdraw{Question: id})
		switch {
		case a.words:
			s.grant(a.request, elicited("cancel", nil))
		case a.file != nil:
			s.refuse(a.request, codeInternal, "the turn is to stop")
		default:
			s.cancelled(a.request)
		}
	}
	clear(s.asks)
}
