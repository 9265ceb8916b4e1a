package codex

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// question is a request of the program's that waits for its answer. A change of several files
// is asked about file by file: all of them must be allowed.
type question struct {
	id     json.RawMessage
	method string
	params params
	open   []string // Question.IDs without an answer
	inRun  bool     // all answers so far are AllowInRun
}

// The requests that are answered. Of the others none is sent to a client that has not asked for
// them, or that has no MCP servers.
const (
	askCommand     = "item/commandExecution/requestApproval"
	askChange      = "item/fileChange/requestApproval"
	askPermissions = "item/permissions/requestApproval"
	askWords       = "item/tool/requestUserInput"
)

var decisions = []worker.Decision{worker.Allow, worker.AllowInRun, worker.Deny, worker.DenyAndStop}

// ask asks what the program asks.
func (s *session) ask(l *line) {
	p := &l.Params
	q := &question{id: bytes.Clone(l.ID), method: l.Method, params: *p, inRun: true}
	var asked []worker.Question
	switch l.Method {
	case askCommand:
		asked = append(asked, aboutCommand(p))
	case askChange:
		asked = s.aboutChange(p)
	case askPermissions:
		asked = append(asked, worker.Question{Kind: worker.AboutTool, Tool: "permissions", Decisions: decisions,
			Text: strings.TrimSpace("give further permissions? " + p.Reason), Input: bytes.Clone(p.Permissions)})
	case askWords:
		asked = append(asked, aboutWords(p))
	default:
		s.write(reply{ID: q.id, Error: &rpcError{Code: noSuchMethod, Message: "not supported"}})
		return
	}
	for i, one := range asked {
		one.ID = string(q.id)
		if len(asked) > 1 {
			one.ID = fmt.Sprintf("%s/%d", q.id, i+1)
		}
		one.Text, _ = job.Cut(one.Text, agentcli.MaxMessage)
		q.open = append(q.open, one.ID)
		s.do(worker.Ask{Question: one})
	}
	q.params.Permissions = bytes.Clone(p.Permissions)
	s.questions = append(s.questions, q)
}

// aboutCommand asks about a command, whatever Codex takes it for: it is Codex's own guess
// whether a command only reads, and the model's to mislead it. A managed network asks about hosts.
func aboutCommand(p *params) worker.Question {
	input := map[string]string{"command": p.Command, "cwd": p.Dir}
	q := worker.Question{Kind: worker.AboutCommand, Tool: "commandExecution", Command: p.Command, Decisions: decisions,
		Text: "run " + p.Command + "?"}
	if p.Network != nil {
		q.Kind, q.Host, q.Text = worker.AboutHost, p.Network.Host, "reach "+p.Network.Host+"?"
		input["host"] = p.Network.Host
	}
	if p.Kind != "" && p.Kind != "command" {
		input["kind"] = p.Kind
		q.Text = p.Kind + ": " + p.Command + "?"
	}
	if p.Reason != "" {
		q.Text += " " + p.Reason
	}
	q.Input = bytes.TrimSpace(frame(input))
	return q
}

// aboutChange asks about each file. What is moved is written twice.
func (s *session) aboutChange(p *params) (asked []worker.Question) {
	add := func(path, kind, diff string) {
		q := worker.Question{Kind: worker.AboutWrite, Tool: "fileChange", Path: s.Relative(path), Decisions: decisions,
			Text: fmt.Sprintf("%s %s?", kind, s.Relative(path)), Input: bytes.TrimSpace(frame(map[string]string{"path": path, "kind": kind, "diff": diff}))}
		q.Diff, _ = job.Cut(diff, job.MaxEventText)
		asked = append(asked, q)
	}
	for _, c := range s.changes[p.ItemID] {
		add(c.Path, cmp.Or(c.Kind.Type, "update"), c.Diff)
		if c.Kind.Move != "" {
			add(c.Kind.Move, "add", c.Diff)
		}
	}
	if p.GrantRoot != "" || len(asked) == 0 {
		add(cmp.Or(p.GrantRoot, "/"), "write", "")
	}
	return asked
}

// aboutWords asks what the agent wants to hear. Own words are taken for each choice, so that
// there is no schema unless there are several questions.
func aboutWords(p *params) worker.Question {
	q := worker.Question{Kind: worker.AboutWords, Tool: "requestUserInput", Input: bytes.TrimSpace(frame(p.Questions))}
	var text strings.Builder
	properties, required := map[string]any{}, []string{}
	for _, c := range p.Questions {
		text.WriteString(c.Question + "\n")
		one := map[string]any{"type": "string", "title": c.Question}
		var labels []string
		for _, o := range c.Options {
			text.WriteString("- " + strings.TrimSuffix(o.Label+": "+o.Description, ": ") + "\n")
			labels = append(labels, o.Label)
		}
		if labels != nil {
			one["examples"] = labels
		}
		if properties[c.ID] == nil {
			required = append(required, c.ID)
		}
		properties[c.ID] = one
	}
	q.Text = strings.TrimSpace(text.String())
	if len(p.Questions) > 1 {
		q.Schema = bytes.TrimSpace(frame(map[string]any{"type": "object", "properties": properties, "required": required}))
	}
	return q
}

// answered passes an answer on, when it is the last or a no.
func (s *session) answered(a worker.Answer) {
	i := slices.IndexFunc(s.questions, func(q *question) bool { return slices.Contains(q.open, a.Question) })
	if i < 0 {
		return
	}
	q := s.questions[i]
	q.open = slices.DeleteFunc(q.open, func(id string) bool { return id == a.Question })
	q.inRun = q.inRun && a.Decision == worker.AllowInRun
	if q.method != askWords && a.Decision.Allows() && len(q.open) > 0 {
		return
	}
	s.questions = slices.Delete(s.questions, i, i+1)
	s.do(q.withdraw()...)
	switch {
	case a.Decision == worker.DenyAndStop:
		s.stopping = strings.TrimSuffix("stopped: "+a.Text, ": ")
	case q.method != askWords && !a.Decision.Allows() && a.Text != "":
		s.sayWhy(q, a)
	}
	s.write(reply{ID: q.id, Result: q.result(a)})
	switch {
	case a.Decision.Allows():
		s.run(q.params.ItemID)
	case a.Decision == worker.DenyAndStop && q.method != askCommand && q.method != askChange:
		s.interrupt() // the answer does not say it
	}
}

// sayWhy has the agent told why something was refused, for which the answer has no words. It is said
// before the answer, so that the agent's next step has both.
func (s *session) sayWhy(q *question, a worker.Answer) {
	what := q.params.Command
	switch q.method {
	case askPermissions:
		what = "further permissions"
	case askChange:
		var paths []string
		for _, c := range s.changes[q.params.ItemID] {
			paths = append(paths, s.Relative(c.Path))
		}
		what = "to change " + strings.Join(paths, ", ")
	}
	what, _ = job.Cut(what, agentcli.MaxMessage)
	s.waiting = append(s.waiting, worker.Message{ID: notePrefix + a.Question, Text: fmt.Sprintf("You were not allowed: %s\nThe answer: %s", what, a.Text)})
	s.pump()
}

// result is what an answer reads like to the program.
func (q *question) result(a worker.Answer) any {
	switch q.method {
	case askPermissions:
		r := permitted{Permissions: json.RawMessage("{}"), Scope: "turn"}
		if a.Decision.Allows() && len(q.params.Permissions) > 0 {
			r.Permissions = q.params.Permissions
		}
		if q.inRun {
			r.Scope = "session"
		}
		return r
	case askWords:
		return q.words(a)
	}
	switch {
	case a.Decision == worker.DenyAndStop:
		return decided{"cancel"}
	case !a.Decision.Allows():
		return decided{"decline"}
	case q.inRun && cmp.Or(q.params.Kind, "command") == "command":
		return decided{"acceptForSession"}
	}
	return decided{"accept"}
}

// words returns what was said to each of the agent's questions.
func (q *question) words(a worker.Answer) said {
	var values map[string]string
	_ = json.Unmarshal(a.Value, &values) // of a single question it is words
	var value string
	_ = json.Unmarshal(a.Value, &value)
	all := said{map[string]saidWords{}}
	for _, c := range q.params.Questions {
		all.Answers[c.ID] = saidWords{[]string{cmp.Or(values[c.ID], value, a.Text, "nobody has answered: decide it yourself")}}
	}
	return all
}

func (q *question) withdraw() (actions []worker.Action) {
	for _, id := range q.open {
		actions = append(actions, worker.Withdraw{Question: id})
	}
	return actions
}

// resolved follows each request that the program waits for no longer, the answered ones too.
func (s *session) resolved(id json.RawMessage) {
	s.questions = slices.DeleteFunc(s.questions, func(q *question) bool {
		is := bytes.Equal(q.id, id)
		if is {
			s.do(q.withdraw()...)
		}
		return is
	})
}
