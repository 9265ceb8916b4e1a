package opencode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// request is something that the program asks: for a permission, or, with Questions, for words.
type request struct {
	ID         string          `json:"id"`
	Session    string          `json:"sessionID"`
	Permission string          `json:"permission"` // e.g. "bash"
	Patterns   []string        `json:"patterns"`
	Raw        json.RawMessage `json:"metadata"`
	Questions  []choice        `json:"questions"`
	Tool       struct {
		CallID string `json:"callID"`
	} `json:"tool"`

	refused string // why it is refused, when it is
}

// choice is one question of the agent's.
type choice struct {
	Question string `json:"question"`
	Multiple bool   `json:"multiple"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

// metadata is what a request for a permission is about; which of it there is depends on the permission.
type metadata struct {
	Command     string   `json:"command"`
	Directories []string `json:"directories"`
	Path        string   `json:"filepath"`
	Diff        string   `json:"diff"`
	URL         string   `json:"url"`
	Query       string   `json:"query"`
	Pattern     string   `json:"pattern"`
	Folder      string   `json:"path"`
	Agent       string   `json:"subagent_type"`
	Description string   `json:"description"`
}

// request asks what the program asks. A request of a session that is none of the run's is refused, since nobody knows
// for what it is.
func (s *session) request(r *request) {
	switch {
	case r.ID == "" || s.closed:
		return
	case s.threads[r.Session] == nil:
		s.reply(r, map[string]any{"reply": "reject", "message": notGranted})
		return
	}
	q := worker.Question{ID: r.ID}
	if len(r.Questions) > 0 {
		r.words(&q)
	} else {
		s.permission(r, &q)
	}
	s.asked = append(s.asked, r)
	s.do(worker.Ask{Question: q})
}

// permission fills in what a request for a permission is about.
func (s *session) permission(r *request, q *worker.Question) {
	var m metadata
	agentcli.Decode(r.Raw, &m)
	tool, in := s.callOf(r)
	q.Tool, q.Input = r.Permission, r.Raw
	if len(q.Input) <= len("{}") {
		q.Input = encode(map[string]any{"patterns": r.Patterns})
	}
	q.Decisions = []worker.Decision{worker.Allow, worker.AllowInRun, worker.Deny, worker.DenyAndStop}
	first := ""
	if len(r.Patterns) > 0 {
		first = r.Patterns[0]
	}
	switch r.Permission {
	case "bash":
		q.Kind, q.Command, q.Text = worker.AboutCommand, m.Command, "run "+m.Command+"?"
		if m.Command == "" {
			q.Command = strings.Join(r.Patterns, "; ")
		}
	case "edit", "write":
		q.Kind, q.Path, q.Diff = worker.AboutWrite, s.Relative(cmp.Or(m.Path, in.Path, first)), m.Diff
		q.Text = "change " + q.Path + "?"
	case "read":
		q.Kind, q.Path = worker.AboutRead, s.Relative(cmp.Or(in.Path, m.Path, first))
		q.Text = "read " + q.Path + "?"
	case "glob", "grep", "list":
		q.Kind, q.Path = worker.AboutRead, s.Relative(cmp.Or(in.Folder, m.Folder, "."))
		q.Text = fmt.Sprintf("%s %s in %s?", r.Permission, cmp.Or(m.Pattern, in.Pattern), q.Path)
	case "external_directory":
		q.Kind, q.Path = worker.AboutWrite, outside(m, r.Patterns)
		if slices.Contains([]string{"read", "glob", "grep", "list"}, tool) {
			q.Kind = worker.AboutRead
		}
		q.Text = fmt.Sprintf("use %s, which is outside the workspace?", strings.Join(r.Patterns, ", "))
		if m.Command != "" {
			q.Text += " The command is: " + m.Command
		}
	case "webfetch":
		q.Kind, q.Text = worker.AboutHost, "fetch "+cmp.Or(m.URL, first)+"?"
		if u, err := url.Parse(cmp.Or(m.URL, first)); err == nil {
			q.Host = u.Hostname()
		}
	case "task":
		q.Kind, q.Text = worker.AboutTool, fmt.Sprintf("start the subagent %s? %s", cmp.Or(m.Agent, first), m.Description)
	default:
		q.Kind, q.Text = worker.AboutTool, strings.TrimSpace("use "+r.Permission+" "+cmp.Or(m.Query, m.Command, m.Path, first))+"?"
	}
	q.Text, _ = job.Cut(strings.TrimSpace(q.Text), agentcli.MaxMessage)
	q.Diff, _ = job.Cut(q.Diff, job.MaxEventText)
}

// callOf returns the tool that a request is for, and what that is called with.
func (s *session) callOf(r *request) (tool string, in toolInput) {
	for _, c := range s.calls {
		if c.id == r.Tool.CallID && c.session == r.Session {
			return c.tool, c.input
		}
	}
	return "", toolInput{}
}

// outside returns the file or folder outside the workspace that a call is about: of several the folder that has them all.
func outside(m metadata, patterns []string) string {
	if m.Path != "" {
		return m.Path
	}
	folders := m.Directories
	if len(folders) == 0 {
		for _, p := range patterns {
			folders = append(folders, strings.TrimSuffix(p, "/*"))
		}
	}
	if len(folders) == 0 {
		return "/"
	}
	common := path.Clean(folders[0])
	for _, f := range folders[1:] {
		for common != "/" && common != "." && f != common && !strings.HasPrefix(f, common+"/") {
			common = path.Dir(common)
		}
	}
	return common
}

// words fills in what the agent wants to hear. Own words are taken for each choice, so that it has no schema unless there
// are several, whose answers are told apart by the questions.
func (r *request) words(q *worker.Question) {
	q.Kind, q.Tool = worker.AboutWords, "question"
	q.Input = encode(r.Questions)
	var text strings.Builder
	properties, required := map[string]any{}, []string{}
	for _, c := range r.Questions {
		text.WriteString(c.Question + "\n")
		for _, o := range c.Options {
			text.WriteString("- " + strings.TrimSuffix(o.Label+": "+o.Description, ": ") + "\n")
		}
		one := map[string]any{"type": "string"}
		if labels := c.labels(); len(labels) > 0 {
			one["examples"] = labels
		}
		if c.Multiple {
			one = map[string]any{"type": "array", "items": one}
		}
		if properties[c.Question] == nil {
			required = append(required, c.Question)
		}
		properties[c.Question] = one
	}
	q.Text, _ = job.Cut(strings.TrimSpace(text.String()), job.MaxEventText)
	if len(r.Questions) > 1 {
		q.Schema = encode(map[string]any{"type": "object", "properties": properties, "required": required})
	}
}

func (c choice) labels() []string {
	var all []string
	for _, o := range c.Options {
		all = append(all, o.Label)
	}
	return all
}

// choices returns an answer as the program takes it: of each question the labels that were chosen, or other words.
func (r *request) choices(a worker.Answer) [][]string {
	var values map[string]json.RawMessage
	_ = json.Unmarshal(a.Value, &values) // of a single question it is words
	all := make([][]string, len(r.Questions))
	for i, c := range r.Questions {
		one := cmp.Or(text(a.Value), a.Text, "nobody has answered: decide it yourself")
		var several []string
		switch v := values[c.Question]; {
		case v == nil:
			all[i] = []string{one}
		case json.Unmarshal(v, &several) == nil:
			all[i] = several
		default:
			all[i] = []string{text(v)}
		}
	}
	return all
}
