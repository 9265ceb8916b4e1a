package terminal

import (
	"os"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"

	"github.com/agentsched/agentsched/api"
)

// LiveOptions of a live view; the zero value works.
type LiveOptions struct {
	Colour bool
	Zone   *time.Location   // of the times of lasting lines; nil: the local one
	Now    func() time.Time // nil: time.Now
}

// CanLive reports whether out is a terminal on which a view can be redrawn in
// place, given the value of $TERM.
func CanLive(out *os.File, termName string) bool {
	return term.IsTerminal(out.Fd()) && termName != "" && termName != "dumb"
}

// NewLive returns a view that is redrawn in place, about ten times a second at
// most, on the terminal out; lines that should last scroll away above it. The
// terminal keeps turning Ctrl-C into SIGINT, which is none of the view's
// business. If in is a terminal, what is typed is not echoed until Done, since
// it would tear the view; nil leaves the input alone.
func NewLive(out, in *os.File, jobs []Job, opts LiveOptions) View {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Zone == nil {
		opts.Zone = time.Local
	}
	v := &liveView{opts: opts, columns: columnsOf(jobs), board: newBoard(jobs, opts.Now()), stop: make(chan struct{}),
		ended: make(chan struct{}), gone: make(chan struct{}), drawn: make(chan struct{})}
	v.width, v.height = 80, 24
	if w, h, err := term.GetSize(out.Fd()); err == nil {
		v.width, v.height = w, h
	}
	v.echo = muteEcho(in)
	profile := colorprofile.ASCII
	if opts.Colour {
		profile = colorprofile.ANSI
	}
	screen := &screen{File: out, drawn: sync.OnceFunc(func() { close(v.drawn) })}
	v.program = tea.NewProgram(liveModel{v}, tea.WithOutput(screen), tea.WithInput(nil), tea.WithoutSignalHandler(),
		tea.WithFPS(2*int(time.Second/frameEvery)), tea.WithColorProfile(profile), tea.WithEnvironment(quietEnvironment(os.Getenv("TERM"))))
	v.work.Go(func() {
		defer close(v.gone)
		v.program.Run() // an error means that the terminal is gone, which does not concern the jobs
	})
	v.work.Go(v.pump)
	return v
}

const (
	// frameEvery is the time between two drawings at least.
	frameEvery = 100 * time.Millisecond
	// maxLasting bounds the lines that wait to be printed, if the terminal is
	// slow; the oldest are left out first.
	maxLasting = 1000
)

type liveView struct {
	opts    LiveOptions
	columns columns
	echo    *echo
	program *tea.Program
	work    sync.WaitGroup // the program and the pump
	once    sync.Once
	stop    chan struct{} // closed by Done
	gone    chan struct{} // closed when the program has ended
	drawn   chan struct{} // closed when the first frame is on the screen
	ended   chan struct{} // closed when nothing more is drawn

	mu            sync.Mutex // guards what follows
	width, height int        // of the terminal, in cells
	board         *board
	lasting       []notice // not printed yet
	omitted       int      // lasting lines for which there was no room
	changed       bool     // since the last drawing
	last          bool     // the next drawing is the last
}

func (v *liveView) Show(u api.Update) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last {
		return
	}
	c, before := v.board.apply(u)
	v.changed = true
	if n, ok := noticeOf(u, c, before); ok && n.lasting {
		v.keep(n)
	}
}

// keep has the notice printed with the next frame. Called with v.mu held.
func (v *liveView) keep(n notice) {
	v.lasting = append(v.lasting, n)
	if len(v.lasting) > maxLasting {
		v.lasting = v.lasting[1:]
		v.omitted++
	}
}

func (v *liveView) Done() {
	v.once.Do(func() {
		v.mu.Lock()
		v.last = true
		v.mu.Unlock()
		close(v.stop)
		v.work.Wait()
		v.echo.restore()
		close(v.ended)
	})
	<-v.ended
}

// pump tells the program when to draw: when something changed, and once a
// second for the clocks. Before the first frame the program does not know yet
// where a line above it would go.
func (v *liveView) pump() {
	select {
	case <-v.drawn:
	case <-v.gone:
		return
	}
	tick := time.NewTicker(frameEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-v.stop:
			v.draw(true)
			v.program.Send(tea.Quit())
			return
		case <-tick.C:
			v.draw(n%int(time.Second/frameEvery) == 0)
		}
	}
}

// draw prints the lasting lines and has the view drawn if it changed.
func (v *liveView) draw(always bool) {
	v.mu.Lock()
	lasting, omitted, changed, w := v.lasting, v.omitted, v.changed, v.width
	v.lasting, v.omitted, v.changed = nil, 0, false
	v.mu.Unlock()
	if omitted > 0 {
		note := notice{at: v.opts.Now(), who: "progress", text: plural(omitted, "line was", "lines were") + " left out here", style: faint}
		lasting = append([]notice{note}, lasting...)
	}
	for _, n := range lasting {
		// Line by line, since the program cannot insert more at once than there
		// is room above the view; and by Send, since Program.Println would wait
		// for ever for a program that has ended.
		for _, line := range wrap(v.columns.line(n, v.opts.Zone), w-1, maxWrapped) {
			v.program.Send(tea.Println(paint(line, n.style, v.opts.Colour))())
		}
	}
	if changed || always {
		v.program.Send(drawMsg{})
	}
}

// maxWrapped is how many lines of the terminal a lasting line may take.
const maxWrapped = 6

func (v *liveView) render() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.board.render(frame{width: v.width, height: v.height, now: v.opts.Now(), colour: v.opts.Colour, last: v.last})
}

func (v *liveView) resize(width, height int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.width, v.height = width, height
}

// liveModel is the view as the program knows it.
type liveModel struct{ view *liveView }

// drawMsg says that there is something new to draw.
type drawMsg struct{}

func (m liveModel) Init() tea.Cmd { return nil }

func (m liveModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if size, ok := msg.(tea.WindowSizeMsg); ok {
		m.view.resize(size.Width, size.Height)
	}
	return m, nil
}

func (m liveModel) View() tea.View {
	v := tea.NewView(m.view.render())
	v.DisableBracketedPasteMode = true
	return v
}

// screen is the terminal; it tells when something was drawn.
type screen struct {
	*os.File
	drawn func()
}

func (s *screen) Write(p []byte) (int, error) {
	n, err := s.File.Write(p)
	s.drawn()
	return n, err
}

// quietEnvironment is what the program knows of the environment. It asks the
// terminal what it can do unless it believes to be on the far side of SSH on a
// terminal that it does not know; since nobody here reads the input, the
// terminal's answer would end up in the user's shell.
func quietEnvironment(termName string) []string {
	for _, asks := range []string{"ghostty", "wezterm", "alacritty", "kitty", "rio"} {
		if strings.Contains(termName, asks) {
			termName = "xterm-256color"
		}
	}
	return []string{"TERM=" + termName, "SSH_TTY=none"}
}
