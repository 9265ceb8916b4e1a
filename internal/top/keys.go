package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/progress"
	"github.com/agentsched/agentsched/job"
)

// helpLines says what each key does.
var helpLines = []string{
	"↑ ↓ j k        choose a job            PgUp PgDn Home End g G   further",
	"enter l        follow its log          / esc                    filter, no filter",
	"c              cancel it               s                        sort: state, age, cost, tenant",
	"a              approve what it made    r                        reject it, with a comment",
	"p              pause or resume all     q Ctrl-C                 leave; the jobs go on",
	"",
	"In a log: ↑ ↓ PgUp PgDn Home scroll, End follows the end, esc goes back.",
	"SHARE is what a tenant has had, | what it is to have by the policy.",
}

// key is what a key does.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	m.say, m.bad = "", false
	if k.String() == "ctrl+c" {
		return tea.Quit
	}
	switch m.mode {
	case filtering:
		m.typeFilter(k)
	case rejecting:
		return m.typeComment(k)
	case confirming:
		m.mode = browsing
		if k.String() == "y" || k.String() == "Y" {
			return m.ask.yes
		}
		m.say = "nothing was done"
	case reading:
		m.log.key(m, k.String())
	case helping:
		m.mode = browsing
	default:
		return m.browse(k.String())
	}
	return nil
}

func (m *model) browse(key string) tea.Cmd {
	switch key {
	case "q":
		return tea.Quit
	case "?", "h":
		m.mode = helping
	case "/":
		m.mode, m.input = filtering, m.filter
	case "esc":
		m.filter = ""
	case "s":
		m.order = (m.order + 1) % orders
		m.say = "sorted by " + m.order.String()
	case "p":
		m.askPause()
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+b":
		m.move(-m.jobRoom())
	case "pgdown", "ctrl+f", "space":
		m.move(m.jobRoom())
	case "home", "g":
		m.move(-len(m.picture.Jobs))
	case "end", "G":
		m.move(len(m.picture.Jobs))
	case "c", "a", "r", "l", "enter":
		e := m.selected()
		if e == nil {
			m.say = "no job is chosen"
			return nil
		}
		return m.onJob(key, e)
	}
	return nil
}

// onJob is what a key does to a job.
func (m *model) onJob(key string, e *api.Job) tea.Cmd {
	id, name := e.ID, progress.Clean(e.Spec.Name)
	switch key {
	case "c":
		if e.State.Terminal() {
			m.say = name + " has ended"
			return nil
		}
		m.confirm(fmt.Sprintf("Cancel %s? y/n", name), m.do(name+": is cancelled", func(ctx context.Context) error { return m.source.Cancel(ctx, id) }))
	case "a", "r":
		if statusOf(e).State != job.WaitingApproval {
			m.say = name + " waits for no approval"
			return nil
		}
		if key == "r" {
			m.mode, m.input = rejecting, ""
			return nil
		}
		m.confirm(fmt.Sprintf("Approve %s? y/n", name), m.do(name+": approved", func(ctx context.Context) error { return m.source.Answer(ctx, id, true, "") }))
	default:
		return m.openLog(e)
	}
	return nil
}

func (m *model) confirm(text string, yes tea.Cmd) {
	m.mode, m.ask = confirming, question{text, yes}
}

// askPause asks whether all is to be paused, or to go on if it is.
func (m *model) askPause() {
	if slices.ContainsFunc(m.picture.Overview.Isolations, func(i api.Isolation) bool { return i.Scope == "global" }) {
		m.confirm("Nothing new begins. Let jobs begin again? y/n", m.do("jobs begin again", m.source.Resume))
		return
	}
	m.confirm("Let no job begin until somebody resumes it? What runs goes on. y/n", m.do("paused: p resumes", m.source.Pause))
}

// move chooses the job that is n further on the screen.
func (m *model) move(n int) {
	jobs := m.shown()
	if len(jobs) == 0 {
		m.chosen = ""
		return
	}
	i := max(min(m.position(jobs)+n, len(jobs)-1), 0)
	m.chosen = jobs[i].ID
}

// position is the index of the chosen job among those shown, 0 if it is gone.
func (m *model) position(jobs []*api.Job) int {
	return max(slices.IndexFunc(jobs, func(e *api.Job) bool { return e.ID == m.chosen }), 0)
}

func (m *model) selected() *api.Job {
	jobs := m.shown()
	if len(jobs) == 0 {
		return nil
	}
	return jobs[m.position(jobs)]
}

func (m *model) typeFilter(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter":
		m.mode = browsing
	case "esc":
		m.mode, m.filter = browsing, ""
	default:
		m.edit(k)
		m.filter = m.input
	}
}

func (m *model) typeComment(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "esc":
		m.mode, m.say = browsing, "nothing was done"
	case "enter":
		e, comment := m.selected(), strings.TrimSpace(m.input)
		if comment == "" {
			m.say, m.bad = "a rejection needs a comment: what is to be done better?", true
			return nil
		}
		m.mode = browsing
		if e == nil || statusOf(e).State != job.WaitingApproval {
			m.say, m.bad = "it waits for no approval any more", true
			return nil
		}
		id := e.ID
		return m.do(progress.Clean(e.Spec.Name)+": rejected", func(ctx context.Context) error { return m.source.Answer(ctx, id, false, comment) })
	default:
		m.edit(k)
	}
	return nil
}

// maxInput is how much can be typed, in characters.
const maxInput = 500

// edit changes what is being typed.
func (m *model) edit(k tea.KeyPressMsg) {
	switch k.String() {
	case "backspace", "ctrl+h":
		if r := []rune(m.input); len(r) > 0 {
			m.input = string(r[:len(r)-1])
		}
	case "ctrl+u":
		m.input = ""
	default:
		m.typed(k.Key().Text)
	}
}

// typed adds text, of which only what can be printed.
func (m *model) typed(text string) {
	r := []rune(m.input)
	for _, c := range text {
		if unicode.IsPrint(c) && len(r) < maxInput {
			r = append(r, c)
		}
	}
	m.input = string(r)
	if m.mode == filtering {
		m.filter = m.input
	}
}
