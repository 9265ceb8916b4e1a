package exec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// talk is the conversation of a run.
type talk struct {
	met                             bool // the first line was read, which says the next three
	messages, questions, interrupts bool
	early                           []worker.Input // messages and an interrupt that came before that

	told map[string]worker.MessageState // of the messages that the program has and has not settled for good
	open map[string]bool                // its questions
	over string                         // why the program is told no more; "" while it is
}

// The bounds of a conversation, in bytes where it is text. What decides about a
// question is never cut, since what is left would be another question.
const (
	maxEarly  = 256  // messages that wait for the hello
	maxTold   = 1000 // messages that the program has not settled
	maxOpen   = 64   // questions
	maxID     = 200
	maxName   = 1 << 10 // a tool, a host
	maxPath   = 4 << 10
	maxDiff   = 256 << 10
	maxInput  = 256 << 10
	maxSchema = 64 << 10
)

// meet notes what a program takes part in, which its first line says, and passes on
// what came before. A line other than hello says that it takes part in nothing.
func (r *run) meet(converses []string) []worker.Action {
	if r.talk.met {
		if len(converses) > 0 {
			return worker.Events(r.warn("late", "what a hello says that the worker converses by was ignored: it is not the first line")...)
		}
		return nil
	}
	r.talk.met = true
	var actions []worker.Action
	for _, by := range converses {
		switch by {
		case byMessages:
			r.talk.messages = true
		case byQuestions:
			r.talk.questions = true
		case byInterrupts:
			r.talk.interrupts = true
		default:
			actions = append(actions, worker.Events(r.warn("converses", "the hello says that the worker converses by %s, which is not known", shown(by))...)...)
		}
	}
	for _, in := range r.talk.early {
		switch in := in.(type) {
		case worker.Message:
			actions = append(actions, r.tell(in)...)
		case worker.Interrupt:
			actions = append(actions, r.interrupt(in)...)
		}
	}
	r.talk.early = nil
	return actions
}

// tell passes a message on.
func (r *run) tell(m worker.Message) []worker.Action {
	var why string
	switch {
	case r.talk.over != "":
		why = r.talk.over
	case !r.talk.met && len(r.talk.early) < maxEarly:
		r.talk.early = append(r.talk.early, m)
		return nil
	case !r.talk.met:
		why = "the worker has not said hello yet, and many messages wait for that"
	case !r.talk.messages:
		why = "this worker takes no messages"
	case len(r.talk.told) >= maxTold:
		why = fmt.Sprintf("the worker has %d messages of which it has not said what became", maxTold)
	default:
		r.talk.told[m.ID] = ""
		return say(Message{Type: "message", ID: m.ID, From: m.From, Text: m.Text, Again: m.Again})
	}
	return []worker.Action{worker.Settle{Message: m.ID, State: worker.MessageRefused, Reason: why}}
}

// interrupt passes an interrupt on to a program that takes them.
func (r *run) interrupt(in worker.Interrupt) []worker.Action {
	if !r.talk.met {
		r.talk.early = append(slices.DeleteFunc(r.talk.early, func(in worker.Input) bool {
			_, same := in.(worker.Interrupt)
			return same
		}), in)
		return nil
	}
	if !r.talk.interrupts || r.talk.over != "" {
		return nil
	}
	reason := cmp.Or(in.Reason, "interrupted")
	r.asked = &reason
	return say(Interrupt{Type: "interrupt", Reason: in.Reason})
}

// settle says what became of a message that the program has. Nothing is said twice, or
// after it was folded or refused.
func (r *run) settle(m settle) []worker.Action {
	last, has := r.talk.told[m.Message]
	switch {
	case !has:
		return worker.Events(r.warn("settle", "a settle line was ignored: the worker has no message %s, or has settled it", shown(m.Message))...)
	case m.State == worker.MessageDelivered && last == worker.MessageDelivered:
		return nil
	case m.State == worker.MessageDelivered:
		r.talk.told[m.Message] = m.State
		m.Reason = ""
	case m.State == worker.MessageFolded:
		delete(r.talk.told, m.Message)
		m.Reason = ""
	case m.State == worker.MessageRefused:
		delete(r.talk.told, m.Message)
		m.Reason = cmp.Or(cut(m.Reason), "the worker refused it and did not say why")
	default:
		return worker.Events(r.warn("state", "a settle line was ignored: state %s, want delivered, folded or refused", shown(string(m.State)))...)
	}
	return []worker.Action{worker.Settle{Message: m.Message, State: m.State, Reason: m.Reason}}
}

// question asks what the program wants to know. A question that cannot be asked is
// answered at once, so that the program does not wait; one whose id is no good cannot be.
func (r *run) question(m question) []worker.Action {
	switch {
	case !validID(m.ID):
		return worker.Events(r.warn("question id", "a question line was ignored: its id is %s, want 1 to %d bytes of printable text", shown(m.ID), maxID)...)
	case r.talk.open[m.ID]:
		return worker.Events(r.warn("open", "a question line was ignored: the question %s is open", shown(m.ID))...)
	}
	m.Input, m.Schema = compact(m.Input), compact(m.Schema)
	var actions []worker.Action
	if !r.talk.questions {
		actions = worker.Events(r.warn("questions", "the worker asks, but its hello does not say that it converses by questions")...)
	}
	if why := r.unfit(&m); why != "" {
		actions = append(actions, worker.Events(r.warn("question "+why, "a question was not asked: %s", why)...)...)
		return append(actions, say(Answer{Type: "answer", Question: m.ID, Text: "the question was not asked: " + why})...)
	}
	q := worker.Question{
		ID: m.ID, Kind: m.Kind, Tool: m.Tool, Command: m.Command, Path: m.Path, Host: m.Host,
		Input: m.Input, Schema: m.Schema,
	}
	field, value := m.about()
	q.Text, _ = job.Cut(cmp.Or(m.Text, field+" "+value), job.MaxEventText)
	q.Diff, _ = job.Cut(m.Diff, maxDiff)
	var odd []job.Event
	q.Decisions, odd = r.decisions(&m)
	r.talk.open[m.ID] = true
	return append(append(actions, worker.Events(odd...)...), worker.Ask{Question: q})
}

// about returns which field decides about a question of this kind, and its value.
func (m *question) about() (field, value string) {
	switch m.Kind {
	case worker.AboutCommand:
		return "command", m.Command
	case worker.AboutWrite, worker.AboutRead:
		return "path", m.Path
	case worker.AboutHost:
		return "host", m.Host
	case worker.AboutTool:
		return "tool", m.Tool
	case worker.AboutWords:
		return "text", m.Text
	}
	return "", ""
}

// unfit returns why a question cannot be asked; "" if it can.
func (r *run) unfit(m *question) string {
	field, value := m.about()
	switch {
	case len(r.talk.open) >= maxOpen:
		return fmt.Sprintf("%d questions are open", maxOpen)
	case field == "":
		return "its kind " + shown(string(m.Kind)) + " is not known"
	case strings.TrimSpace(value) == "":
		return fmt.Sprintf("it is of the kind %s and has no %s", m.Kind, field)
	}
	for _, b := range []struct {
		field    string
		has, max int
	}{
		{"command", len(m.Command), job.MaxEventText},
		{"path", len(m.Path), maxPath},
		{"host", len(m.Host), maxName},
		{"tool", len(m.Tool), maxName},
		{"input", len(m.Input), maxInput},
		{"schema", len(m.Schema), maxSchema},
	} {
		if b.has > b.max {
			return fmt.Sprintf("its %s has more than %d bytes", b.field, b.max)
		}
	}
	return ""
}

// decisions returns those that the program takes for an answer. A question whether it may
// do something that names none takes yes and no.
func (r *run) decisions(m *question) (list []worker.Decision, odd []job.Event) {
	known := []worker.Decision{worker.Allow, worker.AllowInRun, worker.Deny, worker.DenyAndStop}
	for _, d := range m.Decisions {
		switch {
		case !slices.Contains(known, d):
			odd = append(odd, r.warn("decision", "a question takes the unknown decision %s", shown(string(d)))...)
		case !slices.Contains(list, d):
			list = append(list, d)
		}
	}
	if len(list) == 0 && m.Kind != worker.AboutWords {
		list = []worker.Decision{worker.Allow, worker.Deny}
	}
	return list, odd
}

// withdraw takes a question back.
func (r *run) withdraw(m withdraw) []worker.Action {
	if !r.talk.open[m.Question] {
		return worker.Events(r.warn("withdraw", "a withdraw line was ignored: the question %s is not open", shown(m.Question))...)
	}
	delete(r.talk.open, m.Question)
	return []worker.Action{worker.Withdraw{Question: m.Question}}
}

// answered passes on the answer to an open question.
func (r *run) answered(a worker.Answer) []worker.Action {
	if !r.talk.open[a.Question] {
		return nil
	}
	delete(r.talk.open, a.Question)
	return say(Answer{Type: "answer", Question: a.Question, Decision: a.Decision, Text: a.Text, Value: a.Value})
}

func validID(id string) bool {
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, func(c rune) bool { return !unicode.IsPrint(c) })
}

// compact returns a JSON value without spaces; nil for none and for null.
func compact(value json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if len(value) == 0 || string(value) == "null" || json.Compact(&out, value) != nil {
		return nil
	}
	return bytes.ToValidUTF8(out.Bytes(), []byte("\uFFFD"))
}
