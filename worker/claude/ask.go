package claude

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

const (
	maxQuestions = 100      // that wait at once
	maxField     = 64 << 10 // of a question, in bytes: a longer call cannot be judged
	maxDiff      = 32 << 10 // bytes
)

// control is a request of the program's.
type control struct {
	Subtype  string          `json:"subtype"`
	Tool     string          `json:"tool_name"`
	CallID   string          `json:"tool_use_id"`
	Input    json.RawMessage `json:"input"`
	Path     string          `json:"blocked_path"`         // of a command: a path for which it asks
	Decision string          `json:"decision_reason_type"` // why it asks
}

// asked is a call for which the program waits.
type asked struct {
	call  string          // the id of the call
	input json.RawMessage // what is given back if it may
	words []choice        // AskUserQuestion
}

// arguments are those of the tools about which a question says more than the name.
type details struct {
	input
	Old       string   `json:"old_string"`
	New       string   `json:"new_string"`
	Content   string   `json:"content"`
	Source    string   `json:"new_source"`
	Edits     []edit   `json:"edits"`
	Questions []choice `json:"questions"`
}

type edit struct {
	Old string `json:"old_string"`
	New string `json:"new_string"`
}

// choice is one question of AskUserQuestion.
type choice struct {
	Question string `json:"question"`
	Multiple bool   `json:"multiSelect"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

// controlled reads a request of the program's.
func (s *session) controlled(l line) {
	r := l.Request
	switch _, open := s.asked[l.RequestID]; {
	case l.RequestID == "" || len(l.RequestID) > maxField || open || s.closed:
		return
	case r.Subtype != "can_use_tool":
		s.write(frame(object{"type": "control_response", "response": object{"subtype": "error", "request_id": l.RequestID, "error": "not supported"}}))
		return
	}
	var d details
	agentcli.Decode(r.Input, &d)
	q := s.question(r, d)
	q.ID = l.RequestID
	switch {
	case len(q.Input) == 0:
		s.deny(q.ID, "The arguments of this call cannot be read.", false)
	case len(s.asked) >= maxQuestions:
		s.deny(q.ID, "Too many calls wait for an answer.", false)
	case max(len(q.Tool), len(q.Command), len(q.Path), len(q.Host), len(q.Schema)) > maxField:
		s.deny(q.ID, "This call is too long to be judged.", false)
	default:
		a := asked{call: r.CallID, input: r.Input}
		if q.Kind == worker.AboutWords {
			a.words = d.Questions
		}
		s.asked[q.ID] = a
		s.do(worker.Ask{Question: q})
	}
}

// question says what a call is about.
func (s *session) question(r control, d details) worker.Question {
	q := worker.Question{Kind: worker.AboutTool, Tool: r.Tool, Input: same(r.Input), Decisions: []worker.Decision{worker.Allow, worker.Deny, worker.DenyAndStop}}
	what := "use " + r.Tool
	switch r.Tool {
	case "Bash":
		q.Kind, q.Command, q.Path = worker.AboutCommand, d.Command, r.Path
		what = "run " + d.Command
	case "Edit", "MultiEdit", "Write", "NotebookEdit":
		// What the program itself guards (.git, its own settings) no grant of edits means.
		if q.Path = d.Path + d.Notebook; r.Decision != "safetyCheck" {
			q.Kind = worker.AboutWrite
		}
		q.Diff = d.diff()
		what = "change " + q.Path
	case "Read", "Glob", "Grep":
		q.Kind, q.Path = worker.AboutRead, cmp.Or(d.Path+d.Notebook+d.Folder, s.dir)
		what = "read " + q.Path
	case "WebFetch":
		if u, err := url.Parse(d.URL); err == nil && u.Hostname() != "" {
			q.Kind, q.Host = worker.AboutHost, strings.ToLower(u.Hostname())
			what = "fetch " + d.URL
		}
	case "AskUserQuestion":
		if len(d.Questions) > 0 {
			q.Kind, q.Decisions = worker.AboutWords, nil
			q.Text, q.Schema = words(d.Questions)
			return q
		}
	}
	what, _ = job.Cut(what, 1<<10)
	q.Text = what + "?"
	return q
}

// same returns arguments without what says nothing about the call, so that equal calls
// are equal; a digest of those that are long.
func same(raw json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil || all == nil {
		return nil
	}
	delete(all, "description") // the model's words on a command
	data, err := json.Marshal(all)
	switch {
	case err != nil:
		return nil
	case len(data) > maxField:
		return fmt.Appendf(nil, `{"sha256":"%x"}`, sha256.Sum256(data))
	}
	return data
}

// diff returns what a call would change: lines that go begin with a minus, those that
// come with a plus.
func (d *details) diff() string {
	var b strings.Builder
	add := func(sign, text string) {
		for l := range strings.Lines(text) {
			if b.Len() > maxDiff {
				return
			}
			b.WriteString(sign + strings.TrimSuffix(l, "\n") + "\n")
		}
	}
	for _, e := range append([]edit{{d.Old, d.New + d.Content + d.Source}}, d.Edits...) {
		add("-", e.Old)
		add("+", e.New)
	}
	text, _ := job.Cut(b.String(), maxDiff)
	return text
}

// words returns the text of questions for a person, and the schema of a Value that
// answers them: for each its choice, or a list of choices.
func words(all []choice) (text string, schema json.RawMessage) {
	var b strings.Builder
	properties, required := object{}, []string{}
	for i, c := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(c.Question)
		labels := make([]string, len(c.Options))
		for i, o := range c.Options {
			labels[i] = o.Label
			fmt.Fprintf(&b, "\n- %s: %s", o.Label, o.Description)
		}
		one := object{"type": "string", "enum": labels}
		if c.Multiple {
			one = object{"type": "array", "items": one, "minItems": 1, "uniqueItems": true}
		}
		properties[c.Question], required = one, append(required, c.Question)
	}
	schema, err := json.Marshal(object{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
	if err != nil {
		return "", nil
	}
	text, _ = job.Cut(b.String(), job.MaxEventText)
	return text, schema
}

// answered passes an answer on.
func (s *session) answered(in worker.Answer) {
	a, ok := s.asked[in.Question]
	if !ok {
		return
	}
	delete(s.asked, in.Question)
	switch {
	case in.Decision.Allows():
		if a.words != nil {
			a.input = a.reply(in)
		}
		s.respond(in.Question, object{"behavior": "allow", "updatedInput": a.input})
	case in.Decision == worker.DenyAndStop:
		s.stop("stopped: " + cmp.Or(in.Text, "a call was not allowed"))
		s.deny(in.Question, in.Text, true)
	default:
		s.deny(in.Question, in.Text, false)
	}
}

// reply returns the arguments of AskUserQuestion with the answers in them.
func (a *asked) reply(in worker.Answer) json.RawMessage {
	var chosen map[string]json.RawMessage
	_ = json.Unmarshal(in.Value, &chosen) // there is none: the text is the answer
	answers := map[string]string{}
	for _, c := range a.words {
		var one string
		var several []string
		switch v := chosen[c.Question]; {
		case json.Unmarshal(v, &one) == nil:
		case json.Unmarshal(v, &several) == nil:
			one = strings.Join(several, ", ")
		default:
			one = in.Text
		}
		answers[c.Question] = one
	}
	all := map[string]any{}
	_ = json.Unmarshal(a.input, &all) // an object: its questions were read
	all["answers"] = answers
	data, err := json.Marshal(all)
	if err != nil {
		return a.input
	}
	return data
}

func (s *session) deny(request, why string, stop bool) {
	response := object{"behavior": "deny", "message": cmp.Or(why, "This call is not allowed.")}
	if stop {
		response["interrupt"] = true
	}
	s.respond(request, response)
}

func (s *session) respond(request string, response object) {
	s.write(frame(object{"type": "control_response", "response": object{"subtype": "success", "request_id": request, "response": response}}))
}

// withdrawn reads that the program waits no more for an answer. The call was not denied
// to it, although its result will say so.
func (s *session) withdrawn(request string) {
	if a, ok := s.asked[request]; ok {
		delete(s.asked, request)
		s.named[a.call] = true
		s.do(worker.Withdraw{Question: request})
	}
}
