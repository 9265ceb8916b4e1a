package terminal

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

const (
	// readEvery is how often a log that is read to its end is looked at again.
	readEvery = 500 * time.Millisecond
	// readAtOnce is how many events are asked for.
	readAtOnce = 500
	// maxLogLines is how many lines of a log are kept; the oldest go first.
	maxLogLines = 5000
)

// logPane is the log of a job as it is read.
type logPane struct {
	turn  int // counts what was opened, to tell late answers apart
	id    job.ID
	name  string
	after int64
	// attempt is that of the latest line.
	attempt int
	lines   []string
	above   int // lines between the last on the screen and the end; 0 follows it
	cut     int // lines that were left out before the first
	err     string
}

type (
	logMsg struct {
		turn   int
		events []api.Event
		err    error
	}
	readMsg struct{ turn int } // it is time to read on
)

func (m *topModel) openLog(e *api.Job) tea.Cmd {
	id := e.ID
	if e.CoalescedWith != "" {
		id = e.CoalescedWith // it has no run of its own
	}
	m.mode, m.log = reading, logPane{turn: m.log.turn + 1, id: id, name: Clean(e.Spec.Name)}
	return m.log.read(m)
}

func (l *logPane) read(m *topModel) tea.Cmd {
	turn, id, after := l.turn, l.id, l.after
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, askFor)
		defer cancel()
		events, err := m.source.Events(ctx, id, after, readAtOnce)
		return logMsg{turn, events, err}
	}
}

// take adds what was read, unless the person looks at something else by now.
func (l *logPane) take(m *topModel, msg logMsg) tea.Cmd {
	if m.mode != reading || msg.turn != l.turn {
		return nil
	}
	l.err = ""
	if msg.err != nil {
		l.err = Clean(FirstLine(msg.err.Error()))
	}
	for i := range msg.events {
		l.after = msg.events[i].Cursor
		if n := msg.events[i].Attempt; n != l.attempt {
			if l.attempt > 0 {
				l.lines = append(l.lines, fmt.Sprintf("— attempt %d", n))
			}
			l.attempt = n
		}
		l.lines = append(l.lines, EventLine(&msg.events[i].Event))
	}
	if l.above > 0 {
		l.above += len(msg.events) // what is read stays where it is
	}
	if n := len(l.lines) - maxLogLines; n > 0 {
		l.lines, l.cut = l.lines[n:], l.cut+n
	}
	if len(msg.events) == readAtOnce {
		return l.read(m)
	}
	return tea.Tick(readEvery, func(time.Time) tea.Msg { return readMsg{msg.turn} })
}

func (l *logPane) again(m *topModel, msg readMsg) tea.Cmd {
	if m.mode != reading || msg.turn != l.turn {
		return nil
	}
	return l.read(m)
}

func (l *logPane) key(m *topModel, key string) {
	room := max(m.height-2, 1) // as draw has
	switch key {
	case "esc", "q", "left":
		m.mode = browsing
	case "up", "k":
		l.above++
	case "down", "j":
		l.above--
	case "pgup", "ctrl+b":
		l.above += room
	case "pgdown", "ctrl+f", "space":
		l.above -= room
	case "home", "g":
		l.above = len(l.lines)
	case "end", "G":
		l.above = 0
	}
	l.above = max(min(l.above, len(l.lines)-room), 0)
}

// draw draws the log: a head, and up to room lines.
func (l *logPane) draw(v *scene, room, w int) []string {
	end := len(l.lines) - l.above
	from := max(end-max(room, 1), 0)
	where := "follows the end"
	if l.above > 0 {
		where = fmt.Sprintf("lines %d to %d of %d", l.cut+from+1, l.cut+end, l.cut+len(l.lines))
	}
	if l.err != "" {
		where = "cannot be read: " + l.err
	}
	lines := []string{v.paint(edges("log of "+l.name, where, w), bold)}
	if len(l.lines) == 0 && l.err == "" {
		return append(lines, v.paint(Cut("nothing has happened yet", w), faint))
	}
	for _, line := range l.lines[from:end] {
		lines = append(lines, Cut(line, w))
	}
	return lines
}
