package terminal

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/agentsched/agentsched/job"
)

// TalkOptions of a conversation on a terminal; the zero value works.
type TalkOptions struct {
	Colour bool
	Term   string         // the value of $TERM
	Zone   *time.Location // of times; nil: the local one
}

// TalkStand is what stands below a conversation, above the line that is written.
type TalkStand struct {
	Text string
	Lost bool   // nobody hears what is written
	Asks string // what the agent asks; "" nothing
	How  string // to answer that
	Name string // of what is asked, for Written
}

// Written is a line that the person has written.
type Written struct {
	Text string
	Asks string // TalkStand.Name when it was written
}

// maxWritten is how many lines may wait until somebody has time for them.
const maxWritten = 100

// Talk is a terminal on which a conversation is shown and written. What is shown scrolls away above a
// line to write in, and stays when the person has left.
type Talk struct {
	opts    TalkOptions
	program *tea.Program
	written chan Written
	drawn   chan struct{} // closed when the first frame is on the screen
	gone    chan struct{} // closed when the program has ended
	err     error         // of the program, when it is gone
	work    sync.WaitGroup
	width   width
}

// width is that of a terminal, in cells.
type width struct {
	mu sync.Mutex
	n  int
}

func (w *width) set(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n = n
}

func (w *width) get() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// OpenTalk takes the terminal, with what is written from in, until Close; it also ends with ctx. Ctrl-D and
// Ctrl-C leave it: then Written is closed. The caller must call Close.
func OpenTalk(ctx context.Context, in, out *os.File, opts TalkOptions) *Talk {
	if opts.Zone == nil {
		opts.Zone = time.Local
	}
	t := &Talk{opts: opts, written: make(chan Written, maxWritten), drawn: make(chan struct{}), gone: make(chan struct{}), width: width{n: 80}}
	profile := colorprofile.ASCII
	if opts.Colour {
		profile = colorprofile.ANSI
	}
	model := &talkModel{talk: t, colour: opts.Colour, input: typing{many: true, most: job.MaxMessage}}
	t.program = tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(&screen{File: out, drawn: sync.OnceFunc(func() { close(t.drawn) })}),
		tea.WithoutSignalHandler(), tea.WithColorProfile(profile), tea.WithEnvironment([]string{"TERM=" + opts.Term, "SSH_TTY=none"}))
	t.work.Go(func() {
		defer close(t.written)
		defer close(t.gone)
		_, t.err = t.program.Run()
	})
	// Before the first frame the program does not know yet where a line above it would go.
	select {
	case <-t.drawn:
	case <-t.gone:
	}
	return t
}

// Show shows lines below those before.
func (t *Talk) Show(lines []TalkLine) error {
	w := t.width.get()
	for i := range lines {
		// Row by row, since the program cannot insert more at once than there is room
		// above the view. Without a character it inserts nothing.
		for _, row := range lines[i].lay(max(w, 10), t.opts.Colour, t.opts.Zone) {
			if row == "" {
				row = " "
			}
			t.program.Send(tea.Println(row)())
		}
	}
	return nil
}

// Stand shows how things stand.
func (t *Talk) Stand(s TalkStand) {
	s.Text, s.Asks = Clean(s.Text), Clean(s.Asks)
	t.program.Send(s)
}

// Written is what the person has written, each with Enter at its end. It is closed when the person has
// left, or the terminal was closed.
func (t *Talk) Written() <-chan Written { return t.written }

// Close gives the terminal back as it was. The error is that of the terminal.
func (t *Talk) Close() error {
	t.program.Send(talkEnd{})
	t.work.Wait()
	if errors.Is(t.err, tea.ErrInterrupted) || errors.Is(t.err, tea.ErrProgramKilled) && !errors.Is(t.err, tea.ErrProgramPanic) {
		return nil // it was told to end
	}
	return t.err
}

// talkEnd has the view disappear.
type talkEnd struct{}

// talkModel is what stands below what was said.
type talkModel struct {
	talk   *Talk
	colour bool

	stand TalkStand
	input typing
	say   string // to the person, until the next key
	// before are the lines that were written before; back is how many of them the
	// person has gone back, and begun what was written instead until then.
	before []string
	back   int
	begun  string
	over   bool
}

// maxBefore is how many written lines can be called back.
const maxBefore = 100

// talkKeys is what is said of the keys and words where there is nothing else to say.
const talkKeys = "/help  ctrl-o unfolds  ctrl-d leaves"

func (m *talkModel) Init() tea.Cmd { return nil }

func (m *talkModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.talk.width.set(msg.Width)
	case TalkStand:
		m.stand = msg
	case tea.PasteMsg:
		m.input.insert(msg.Content)
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case talkEnd:
		m.over = true
		return m, tea.Quit
	}
	return m, nil
}

func (m *talkModel) key(k tea.KeyPressMsg) tea.Cmd {
	m.say = ""
	switch key := k.String(); key {
	case "ctrl+c":
		return m.leave()
	case "ctrl+d":
		if len(m.input.text) == 0 {
			return m.leave()
		}
		m.input.key(k)
	case "enter":
		m.write(m.input.String())
	case "ctrl+o":
		m.talk.offer(Written{Text: "/more"})
	case "esc":
		m.input.set("")
	case "up", "ctrl+p":
		m.recall(m.back + 1)
	case "down", "ctrl+n":
		m.recall(m.back - 1)
	default:
		m.input.key(k)
	}
	return nil
}

func (m *talkModel) leave() tea.Cmd {
	m.over = true
	return tea.Quit
}

// write gives on what was written, if there is time for it.
func (m *talkModel) write(text string) {
	if text == "" {
		return
	}
	if !m.talk.offer(Written{text, m.stand.Name}) {
		m.say = "what was written before waits still: try again"
		return
	}
	if n := len(m.before); n == 0 || m.before[n-1] != text {
		m.before = append(m.before, text)
	}
	m.before = m.before[max(len(m.before)-maxBefore, 0):]
	m.back = 0
	m.input.set("")
}

// offer passes on what was written; false: too much waits.
func (t *Talk) offer(line Written) bool {
	select {
	case t.written <- line:
		return true
	default:
		return false
	}
}

// recall calls back the line that was written n lines ago; 0 is the one to come.
func (m *talkModel) recall(n int) {
	if n < 0 || n > len(m.before) {
		return
	}
	if m.back == 0 {
		m.begun = m.input.String()
	}
	if m.back = n; n == 0 {
		m.input.set(m.begun)
		return
	}
	m.input.set(m.before[len(m.before)-n])
}

func (m *talkModel) View() tea.View {
	if m.over {
		return tea.NewView("")
	}
	w := max(m.talk.width.get(), 10)
	var text string
	if m.stand.Asks != "" {
		text = paint(edges(Cut(m.stand.Asks, w-Width(m.stand.How)-2), m.stand.How, w), yellow, m.colour) + "\n"
	}
	switch {
	case m.say != "":
		text += paint(Cut(m.say, w), bold+";"+red, m.colour)
	case m.stand.Lost:
		text += paint(Cut(m.stand.Text, w), yellow, m.colour)
	default:
		text += paint(edges(m.stand.Text, talkKeys, w), faint, m.colour)
	}
	const prompt = "> "
	before, after := m.input.window(w - len(prompt))
	v := tea.NewView(text + "\n" + prompt + before + after)
	row := 1
	if m.stand.Asks != "" {
		row++
	}
	v.Cursor = tea.NewCursor(len(prompt)+Width(before), row)
	return v
}
