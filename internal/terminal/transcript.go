package terminal

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// headed gives the first of the lines its head, and a line if there is none.
func headed(at time.Time, who string, s style, lines []TalkLine) []TalkLine {
	if len(lines) == 0 {
		lines = []TalkLine{{}}
	}
	lines[0].At, lines[0].Who = at, who
	for i := range lines {
		if lines[i].style == plain {
			lines[i].style = s
		}
	}
	return lines
}

// one returns one line.
func one(at time.Time, who, text string, s style) []TalkLine {
	return []TalkLine{{At: at, Who: who, Text: text, style: s}}
}

// Note says something about the conversation itself.
func (t *Transcript) Note(at time.Time, text string) []TalkLine {
	return one(at, "", Clean(FirstLine(text)), faint)
}

// Trouble says that something was not done.
func (t *Transcript) Trouble(at time.Time, text string) []TalkLine {
	return one(at, "", Clean(FirstLine(text)), red)
}

// Text is a text of several lines, such as a patch, as code.
func (t *Transcript) Text(at time.Time, who, text string) []TalkLine {
	return headed(at, who, plain, t.show(text, ofDiff, nil))
}

// Begin says which job it is and, unless it goes on from the one before it, what it is to do.
func (t *Transcript) Begin(e *api.Job, goesOn bool) []TalkLine {
	*t = Transcript{folded: t.folded, gone: t.gone}
	lines := one(e.CreatedAt, "job", fmt.Sprintf("%s  %s  tenant %s, worker %s", Clean(e.Spec.Name), Clean(e.ID), Clean(e.Spec.Tenant), Clean(workerOf(e))), bold)
	if goesOn {
		lines[0].Text += ", goes on from that"
		return lines
	}
	return append(lines, t.Prompt(e, false)...)
}

// Prompt is what a job is to do; whole: all of it.
func (t *Transcript) Prompt(e *api.Job, whole bool) []TalkLine {
	return headed(time.Time{}, "to do", plain, t.show(e.Spec.Instructions, ofPrompt, unless(whole, Folded{Job: e.ID})))
}

func unless(whole bool, f Folded) *Folded {
	if whole {
		return nil
	}
	return &f
}

// Message is something that was said to the agent; whole: all of it.
func (t *Transcript) Message(m *api.Message, whole bool) []TalkLine {
	lines := t.show(m.Text, ofWords, unless(whole, Folded{Job: m.Job, Message: m.Number}))
	return append(headed(m.At, cmp.Or(Clean(m.From), "somebody"), bold, lines), TalkLine{Text: messageState(m), style: faint})
}

// Moved says what became of a message.
func (t *Transcript) Moved(at time.Time, m *api.Message) []TalkLine {
	return one(at, "", messageState(m), faint)
}

func messageState(m *api.Message) string {
	text := fmt.Sprintf("(message %d: %s", m.Number, Clean(m.State))
	if m.Reason != "" {
		text += ": " + Clean(m.Reason)
	}
	return text + ")"
}

// Asked says in one line what a question is about: what would be done, rather than how the agent
// puts it.
func Asked(q *api.Question) string {
	switch {
	case len(q.Decisions) == 0:
	case q.Command != "":
		return "run " + Clean(Visible(q.Command, "\n\t"))
	case q.Path != "":
		return Clean(q.Kind) + " " + Clean(Visible(q.Path, "\n\t"))
	case q.Host != "":
		return "reach " + Clean(Visible(q.Host, "\n\t"))
	}
	return Clean(q.Text)
}

// Question is what the agent asks; whole: all that it is about.
func (t *Transcript) Question(q *api.Question, whole bool) []TalkLine {
	f := unless(whole, Folded{Job: q.Job, Question: q.Number})
	lines := t.show(q.Text, ofCall, f)
	for _, of := range []struct{ name, text string }{{"$ ", q.Command}, {"file ", q.Path}, {"host ", q.Host}} {
		if of.text != "" && (len(q.Text) > ofCall.cells || strings.Contains(q.Text, "\n") || !strings.Contains(q.Text, of.text)) {
			lines = append(lines, t.show(of.name+of.text, ofCall, f)...)
		}
	}
	if q.Diff != "" {
		lines = append(lines, t.show(q.Diff, ofDiff, f)...)
	}
	if len(q.Schema) > 0 {
		lines = append(lines, t.show("an answer is "+string(q.Schema), ofCall, f)...)
	}
	return headed(q.AskedAt, fmt.Sprintf("asks %d", q.Number), yellow, lines)
}

// Answered says how a question stands that was asked before: it was answered or taken back, or nobody
// waits any more. Nothing if none of these. Whole: all of the answer.
func (t *Transcript) Answered(at time.Time, q *api.Question, whole bool) []TalkLine {
	who := fmt.Sprintf("answer %d", q.Number)
	switch a := q.Answer; {
	case a != nil:
		text := map[string]string{api.Allow: "yes", api.Deny: "no", api.DenyAndStop: "no, and stop"}[a.Decision]
		if a.Scope == api.GrantJob || a.Scope == api.GrantTenant {
			text += ", always for this " + string(a.Scope)
		}
		words := strings.TrimSpace(a.Text + " " + string(a.Value))
		if words != "" && text != "" {
			text += ": "
		}
		return headed(a.At, who, plain, t.show(text+words+" ("+cmp.Or(Clean(a.By), "somebody")+")", ofWords, unless(whole, Folded{Job: q.Job, Question: q.Number})))
	case q.State == api.QuestionWithdrawn:
		return one(at, who, "none is wanted any more", faint)
	case !q.Waits:
		return one(at, who, "the run does not wait for it any more; it can be given still", faint)
	}
	return nil
}

// Event is something that a run did; whole: all of it. Most of what is only counted is left out. What a subagent did is
// indented.
func (t *Transcript) Event(e *api.Event, whole bool) []TalkLine {
	var lines []TalkLine
	if !whole && e.Attempt != t.attempt {
		t.attempt, t.call = e.Attempt, ""
		lines = one(e.Time, "attempt "+fmt.Sprint(e.Attempt), "", faint)
	}
	did := t.did(e, whole)
	for i := range did {
		did[i].nested = e.Parent != ""
	}
	return append(lines, did...)
}

func (t *Transcript) did(e *api.Event, whole bool) []TalkLine {
	f := unless(whole, Folded{Job: e.Job, Cursor: e.Cursor})
	agent, call := "agent", t.call
	if e.Parent != "" {
		agent = "subagent"
	}
	if !whole {
		t.call = ""
	}
	switch e.Kind {
	case job.EventText:
		if !whole && e.Parent == "" {
			t.said = strings.TrimSpace(e.Text)
		}
		return headed(e.Time, agent, plain, t.show(e.Text+cutNote(e), ofWords, f))
	case job.EventCommand:
		if !whole && e.ExitCode == nil {
			t.call = e.CallID
		}
		return t.command(e, call != "" && call == e.CallID, f)
	case job.EventTool:
		return headed(e.Time, agent, cyan, append(t.show("uses "+e.Tool, ofCall, f), t.show(e.Text+cutNote(e), ofOutput, f)...))
	case job.EventFile:
		return headed(e.Time, agent, cyan, append(t.show(eventText(&e.Event), ofCall, f), t.show(e.Text+cutNote(e), ofDiff, f)...))
	case job.EventAnswer:
		if e.From == "" { // nobody's: the others are told with the questions
			return one(e.Time, "answer", Clean(e.Text), yellow)
		}
	default:
		if n, ok := eventNotice(notice{}, &e.Event); ok {
			return one(e.Time, "", n.text, n.style)
		}
	}
	return nil
}

// command is a command that begins or ends; begun: it is known from the line above what it is.
func (t *Transcript) command(e *api.Event, begun bool, f *Folded) []TalkLine {
	what := t.show("$ "+e.Command, ofCall, f)
	if e.ExitCode == nil {
		return headed(e.Time, "runs", cyan, what)
	}
	s, end := green, fmt.Sprintf("→ exit %d", *e.ExitCode)
	if *e.ExitCode != 0 {
		s = yellow
	}
	if e.Millis > 0 {
		end += ", " + timeText(time.Duration(e.Millis)*time.Millisecond)
	}
	lines := append([]TalkLine{{Text: end, style: s}}, t.show(e.Text+cutNote(e), ofOutput, f)...)
	if begun && f != nil {
		return headed(e.Time, "", plain, lines)
	}
	return headed(e.Time, "ran", plain, append(headed(e.Time, "", cyan, what), lines...))
}

func cutNote(e *api.Event) string {
	if e.Truncated == 0 {
		return ""
	}
	return fmt.Sprintf("\n(%d bytes are left out: the run's own log has them)", e.Truncated)
}

// Stand says how a job stands, and at its end what has come of it.
func (t *Transcript) Stand(at time.Time, j *api.JobDetail) []TalkLine {
	e, st := &j.Job, statusOf(&j.Job)
	text := string(st.State)
	if line := Clean(st.Line()); line != "" {
		text += ": " + line
	}
	s := stateStyle(e)
	lines := one(at, "job", text, s)
	if !e.State.Terminal() || len(j.Attempts) == 0 {
		return lines
	}
	if e.CompletedAt != nil {
		lines[0].At = *e.CompletedAt
	}
	o := j.Attempts[len(j.Attempts)-1].Outcome
	if o == nil {
		return lines
	}
	if answer := strings.TrimSpace(o.Answer); answer != "" && answer != t.said {
		lines = append(t.Answer(j, false), lines...)
	}
	if o.DiffStat != "" {
		lines = append(lines, TalkLine{Text: Clean(o.DiffStat) + ": /diff", style: faint})
	}
	return lines
}

// Answer is what the agent said at the end of the last attempt, which has ended; whole: all of it.
func (t *Transcript) Answer(j *api.JobDetail, whole bool) []TalkLine {
	a := &j.Attempts[len(j.Attempts)-1]
	return headed(a.Outcome.EndedAt, "answer", plain, t.show(a.Outcome.Answer, ofWords, unless(whole, Folded{Job: j.Job.ID, Answer: true})))
}

// TalkMark tells two ways of standing apart of which a conversation tells.
func TalkMark(e *api.Job) string {
	st := statusOf(e)
	mark := fmt.Sprint(st.State, e.CancelRequested)
	switch {
	case st.Waiting != nil:
		mark += string(st.Waiting.Reason)
	case st.State != job.Running && st.State != job.WaitingApproval:
		mark += st.Note
	}
	return mark
}
