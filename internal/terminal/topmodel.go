package terminal

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/agentsched/agentsched/api"
)

// askFor is how long a question to the scheduler may take.
const askFor = 10 * time.Second

// topModel is what the view knows. Update and View do nothing else than compute;
// what they want of the source they return as commands.
type topModel struct {
	ctx    context.Context // of everything that is asked
	source TopSource

	width, height int
	scene         scene
	jobs          jobTable
	log           logPane
	asking        bool // a look is under way
	soon          bool // something changed that the picture does not show

	mode  mode
	input typing
	say   string // one line for the person, until the next key
	bad   bool   // it is about a failure
	ask   question
	// reply is what becomes of what is typed while answering, and prompt stands before it.
	reply  func(words string) tea.Cmd
	prompt string
}

// mode is who gets the keys.
type mode int

const (
	browsing mode = iota
	filtering
	confirming
	rejecting
	answering // a question, in words
	reading   // a job's log
	helping
)

// question is what waits for y or n.
type question struct {
	text string
	yes  tea.Cmd
}

func newTopModel(ctx context.Context, source TopSource, opts TopOptions) *topModel {
	opts = opts.withDefaults()
	return &topModel{ctx: ctx, source: source, scene: scene{opts: opts, now: opts.Now()}, width: 80, height: 24, asking: true}
}

// What happens to a topModel, beside keys and sizes.
type (
	pictureMsg struct {
		picture TopPicture
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

func (m *topModel) Init() tea.Cmd { return tea.Batch(m.look(), m.tick()) }

// look asks how everything stands. Called with asking set.
func (m *topModel) look() tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, askFor)
		defer cancel()
		p, err := m.source.Look(ctx)
		return pictureMsg{p, err}
	}
}

func (m *topModel) tick() tea.Cmd {
	return tea.Tick(m.scene.opts.Every, func(time.Time) tea.Msg { return tickMsg{} })
}

// do asks the source for something that the person wants, and says text when it
// is done.
func (m *topModel) do(text string, what func(context.Context) error) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, askFor)
		defer cancel()
		return doneMsg{text, what(ctx)}
	}
}

func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.scene.now = m.scene.opts.Now()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		if m.mode == filtering || m.mode == rejecting || m.mode == answering {
			m.input.insert(msg.Content)
		}
		if m.mode == filtering {
			m.jobs.filter = m.input.String()
		}
	case tickMsg:
		return m, tea.Batch(m.tick(), m.again())
	case pictureMsg:
		return m, m.take(msg)
	case updatesMsg:
		return m, m.hear(msg)
	case brokenMsg:
		m.scene.lose(msg.err)
	case doneMsg:
		m.say, m.bad = msg.text, false
		if msg.err != nil {
			m.say, m.bad = Clean(msg.err.Error()), true
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
func (m *topModel) again() tea.Cmd {
	if m.asking {
		m.soon = true
		return nil
	}
	m.asking, m.soon = true, false
	return m.look()
}

func (m *topModel) take(msg pictureMsg) tea.Cmd {
	m.asking = false
	if msg.err != nil {
		m.soon = false // not at once: the next tick asks
		m.scene.lose(msg.err)
		return nil
	}
	m.scene.seen, m.scene.picture, m.scene.at, m.scene.lost = true, msg.picture, m.scene.now, ""
	m.jobs.take(&m.scene.picture)
	if m.soon {
		return m.again()
	}
	return nil
}

// hear puts what has changed into the picture, so that it is seen at once, and
// looks again for what an update does not contain, four times as often as otherwise
// at most: a busy scheduler has more to do than to be looked at. What happens in runs is
// no reason to look.
func (m *topModel) hear(updates []api.Update) tea.Cmd {
	moved := false
	for i := range updates {
		if updates[i].Kind == api.UpdateEvent {
			m.jobs.hear(&updates[i])
			continue
		}
		m.scene.apply(&updates[i])
		moved = true
	}
	if !moved || m.asking || m.scene.now.Sub(m.scene.at) < m.scene.opts.Every/4 {
		return nil
	}
	return m.again()
}

func (m *topModel) View() tea.View {
	v := tea.NewView(m.render())
	v.AltScreen = true
	return v
}
