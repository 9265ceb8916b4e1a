package terminal

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// helpLines says what each key does.
var helpLines = []string{
	"↑ ↓ j k        choose a job            PgUp PgDn Home End g G   further",
	"enter l        follow its log          / esc                    filter, no filter",
	"t              talk with its agent     s                        sort: state, age, cost, tenant",
	"a              yes to what its agent asks, or approve what it made",
	"r              no to it, with words if you like, or reject it, with a comment",
	"c              cancel it",
	"p              pause or resume all     q Ctrl-C                 leave; the jobs go on",
	"",
	"In a log: ↑ ↓ PgUp PgDn Home scroll, End follows the end, esc goes back.",
	"SHARE is what a tenant has used; | marks its target by the policy.",
}

// key is what a key does.
func (m *topModel) key(k tea.KeyPressMsg) tea.Cmd {
	m.say, m.bad = "", false
	if k.String() == "ctrl+c" {
		return tea.Quit
	}
	switch m.mode {
	case filtering:
		m.typeFilter(k)
	case rejecting:
		return m.typeComment(k)
	case answering:
		return m.typeAnswer(k)
	case confirming:
		m.mode = browsing
		if k.String() == "y" || k.String() == "Y" {
			return m.ask.yes
		}
		m.say = "nothing changed"
	case reading:
		m.log.key(m, k.String())
	case helping:
		m.mode = browsing
	default:
		return m.browse(k.String())
	}
	return nil
}

func (m *topModel) browse(key string) tea.Cmd {
	all := m.scene.picture.Jobs
	switch key {
	case "q":
		return tea.Quit
	case "?", "h":
		m.mode = helping
	case "/":
		m.mode = filtering
		m.input.set(m.jobs.filter)
	case "esc":
		m.jobs.filter = ""
	case "s":
		m.jobs.order = (m.jobs.order + 1) % orders
		m.say = "sorted by " + m.jobs.order.String()
	case "p":
		m.askPause()
	case "up", "k":
		m.jobs.move(all, -1)
	case "down", "j":
		m.jobs.move(all, 1)
	case "pgup", "ctrl+b":
		m.jobs.move(all, -m.jobRoom())
	case "pgdown", "ctrl+f", "space":
		m.jobs.move(all, m.jobRoom())
	case "home", "g":
		m.jobs.move(all, -len(all))
	case "end", "G":
		m.jobs.move(all, len(all))
	case "c", "a", "r", "t", "l", "enter":
		e := m.jobs.selected(all)
		if e == nil {
			m.say = "no job is chosen"
			return nil
		}
		return m.onJob(key, e)
	}
	return nil
}

// onJob is what a key does to a job.
func (m *topModel) onJob(key string, e *api.Job) tea.Cmd {
	id, name := e.ID, Clean(e.Spec.Name)
	switch key {
	case "c":
		if e.State.Terminal() {
			m.say = name + " has ended"
			return nil
		}
		m.confirm(fmt.Sprintf("Cancel %s? y/n", name), m.do(name+": is cancelled", func(ctx context.Context) error { return m.source.Cancel(ctx, id) }))
	case "t":
		return tea.Exec(talking(func() error { return m.source.Attach(m.ctx, id) }), func(err error) tea.Msg { return doneMsg{"", err} })
	case "a", "r":
		if q := m.jobs.asked[id]; q != nil {
			m.answer(key == "a", name, q)
			return nil
		}
		if statusOf(e).State != job.WaitingApproval {
			m.say = name + " does not wait for approval"
			return nil
		}
		if key == "r" {
			m.mode = rejecting
			m.input.set("")
			return nil
		}
		m.confirm(fmt.Sprintf("Approve %s? y/n", name), m.do(name+": approved", func(ctx context.Context) error { return m.source.Answer(ctx, id, true, "") }))
	default:
		return m.openLog(e)
	}
	return nil
}

// talking is a conversation for which the view makes room.
type talking func() error

func (t talking) Run() error        { return t() }
func (talking) SetStdin(io.Reader)  {}
func (talking) SetStdout(io.Writer) {}
func (talking) SetStderr(io.Writer) {}

// answer has the person say yes or no to a question, or answer it in words.
func (m *topModel) answer(yes bool, name string, q *api.Question) {
	id, number, text := q.Job, q.Number, Asked(q)
	send := func(say string, in api.AnswerQuestion) tea.Cmd {
		return m.do(name+": "+say, func(ctx context.Context) error { return m.source.AnswerQuestion(ctx, id, number, in) })
	}
	switch words := len(q.Decisions) == 0; {
	case words:
		m.prompt = text + " "
		m.reply = func(words string) tea.Cmd {
			if words == "" {
				m.say, m.bad = "it wants words", true
				return nil
			}
			return send("answered", api.AnswerQuestion{Text: words})
		}
	case yes:
		m.confirm(fmt.Sprintf("%s may (y/n)? %s", name, text), send("it may", api.AnswerQuestion{Decision: api.Allow}))
		return
	default:
		m.prompt = fmt.Sprintf("no, %s: ", text)
		m.reply = func(words string) tea.Cmd {
			return send("it may not", api.AnswerQuestion{Decision: api.Deny, Text: words})
		}
	}
	m.mode = answering
	m.input.set("")
}

func (m *topModel) typeAnswer(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "esc":
		m.mode, m.say = browsing, "nothing changed"
	case "enter":
		m.mode = browsing
		return m.reply(strings.TrimSpace(m.input.String()))
	default:
		m.input.key(k)
	}
	return nil
}

func (m *topModel) confirm(text string, yes tea.Cmd) {
	m.mode, m.ask = confirming, question{text, yes}
}

// askPause asks whether all is to be paused, or to go on if it is.
func (m *topModel) askPause() {
	if slices.ContainsFunc(m.scene.picture.Overview.Isolations, func(i api.Isolation) bool { return i.Scope == "global" }) {
		m.confirm("All jobs are paused. Resume them? y/n", m.do("resumed", m.source.Resume))
		return
	}
	m.confirm("Pause all jobs until they are resumed? Running jobs go on. y/n", m.do("paused: p resumes", m.source.Pause))
}

func (m *topModel) typeFilter(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter":
		m.mode = browsing
	case "esc":
		m.mode, m.jobs.filter = browsing, ""
	default:
		m.input.key(k)
		m.jobs.filter = m.input.String()
	}
}

func (m *topModel) typeComment(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "esc":
		m.mode, m.say = browsing, "nothing changed"
	case "enter":
		e, comment := m.jobs.selected(m.scene.picture.Jobs), strings.TrimSpace(m.input.String())
		if comment == "" {
			m.say, m.bad = "a rejection needs a comment: say what should be improved", true
			return nil
		}
		m.mode = browsing
		if e == nil || statusOf(e).State != job.WaitingApproval {
			m.say, m.bad = "the job does not wait for approval any more", true
			return nil
		}
		id := e.ID
		return m.do(Clean(e.Spec.Name)+": rejected", func(ctx context.Context) error { return m.source.Answer(ctx, id, false, comment) })
	default:
		m.input.key(k)
	}
	return nil
}
