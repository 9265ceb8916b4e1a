package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/progress"
	"github.com/agentsched/agentsched/job"
)

// askFor is how long a question to the scheduler may take.
const askFor = 10 * time.Second

// model is what the view knows. Update and View do nothing else than compute;
// what they want of the source they return as commands.
type model struct {
	ctx    context.Context // of everything that is asked
	source Source
	opts   Options

	width, height int
	now           time.Time

	seen    bool // picture is one
	picture Picture
	at      time.Time // of the picture
	lost    string    // why nothing is heard; "": all is well
	lostAt  time.Time
	asking  bool // a look is under way
	soon    bool // something changed that the picture does not show

	mode   mode
	order  order
	filter string
	input  string // what is being typed
	chosen job.ID
	first  int    // index of the first job on the screen
	say    string // one line for the person, until the next key
	bad    bool   // it is about a failure
	ask    question
	log    logPane
}

// mode is who gets the keys.
type mode int

const (
	browsing mode = iota
	filtering
	confirming
	rejecting
	reading // a job's log
	helping
)

// question is what waits for y or n.
type question struct {
	text string
	yes  tea.Cmd
}

func newModel(ctx context.Context, source Source, opts Options) *model {
	opts = opts.withDefaults()
	return &model{ctx: ctx, source: source, opts: opts, width: 80, height: 24, now: opts.Now(), asking: true}
}

// What happens to a model, beside keys and sizes.
type (
	pictureMsg struct {
		picture Picture
		err     error
	}
	updatesMsg []api.Update
	// brokenMsg: what changes is not heard of any more, until the next updatesMsg.
	brokenMsg struct{ err error }
	tickMsg   struct{}
	// doneMsg: what the person asked for was done, or not.
	doneMsg struct {
		text string
		err  error
	}
)

func (m *model) Init() tea.Cmd { return tea.Batch(m.look(), m.tick()) }

// look asks how everything stands. Called with asking set.
func (m *model) look() tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, askFor)
		defer cancel()
		p, err := m.source.Look(ctx)
		return pictureMsg{p, err}
	}
}

func (m *model) tick() tea.Cmd {
	return tea.Tick(m.opts.Every, func(time.Time) tea.Msg { return tickMsg{} })
}

// do asks the source for something that the person wants, and says text when it
// is done.
func (m *model) do(text string, what func(context.Context) error) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, askFor)
		defer cancel()
		return doneMsg{text, what(ctx)}
	}
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.now = m.opts.Now()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		if m.mode == filtering || m.mode == rejecting {
			m.typed(msg.Content)
		}
	case tickMsg:
		return m, tea.Batch(m.tick(), m.again())
	case pictureMsg:
		return m, m.take(msg)
	case updatesMsg:
		return m, m.hear(msg)
	case brokenMsg:
		m.lose(msg.err)
	case doneMsg:
		m.say, m.bad = msg.text, false
		if msg.err != nil {
			m.say, m.bad = progress.Clean(msg.err.Error()), true
		}
		return m, m.again()
	case logMsg:
		return m, m.log.take(m, msg)
	case readMsg:
		return m, m.log.again(m, msg)
	}
	return m, nil
}

// again looks once more, after the look that is under way if there is one.
func (m *model) again() tea.Cmd {
	if m.asking {
		m.soon = true
		return nil
	}
	m.asking, m.soon = true, false
	return m.look()
}

func (m *model) take(msg pictureMsg) tea.Cmd {
	m.asking = false
	if msg.err != nil {
		m.soon = false // not at once: the next tick asks
		m.lose(msg.err)
		return nil
	}
	m.seen, m.picture, m.at, m.lost = true, msg.picture, m.now, ""
	if m.soon {
		return m.again()
	}
	return nil
}

func (m *model) lose(err error) {
	if m.lost == "" {
		m.lostAt = m.now
	}
	m.lost = "no answer"
	if err != nil {
		m.lost = progress.Clean(firstLine(err.Error()))
	}
}

// hear puts what has changed into the picture, so that it is seen at once, and
// looks again for what an update does not tell, four times as often as otherwise
// at most: a busy scheduler has more to do than to be looked at.
func (m *model) hear(updates []api.Update) tea.Cmd {
	for i := range updates {
		m.apply(&updates[i])
	}
	if m.asking || m.now.Sub(m.at) < m.opts.Every/4 {
		return nil
	}
	return m.again()
}

func (m *model) apply(u *api.Update) {
	if u.Kind != api.UpdateJob {
		return
	}
	for i := range m.picture.Jobs {
		e := &m.picture.Jobs[i]
		if e.ID != u.Job {
			continue
		}
		if u.Entry != "" {
			e.State = u.Entry
		}
		if u.ExitKind != "" {
			e.ExitKind = u.ExitKind
		}
		if u.State != "" {
			e.Status = &job.Status{State: u.State, Waiting: u.Waiting, Worker: u.Worker, Note: u.Text}
		}
		if u.Usage != nil {
			e.Spent = *u.Usage
		}
		e.Attempts = max(e.Attempts, u.Attempt)
		if e.State == job.Dispatched && e.DispatchedAt == nil {
			at := u.Time
			e.DispatchedAt = &at
		}
		return
	}
}

func (m *model) View() tea.View {
	v := tea.NewView(m.render())
	v.AltScreen = true
	return v
}
