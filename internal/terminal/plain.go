package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// NewPlain returns a view that writes one line, without colour, for each
// change of a job's state and each event worth reading:
//
//	15:04:05 fix-login  codex   $ go test ./... → exit 0, 2.1s
//
// Times are in zone; nil is the local one.
func NewPlain(out io.Writer, jobs []Job, zone *time.Location) View {
	if zone == nil {
		zone = time.Local
	}
	p := &plainView{out: out, zone: zone, board: newBoard(jobs, time.Time{}), quiet: map[job.ID]*quiet{}, columns: columnsOf(jobs)}
	return p
}

type plainView struct {
	out     io.Writer
	zone    *time.Location
	columns columns

	mu    sync.Mutex // guards what follows, and the order of lines
	board *board
	quiet map[job.ID]*quiet
	done  bool
}

// quiet is when a job last said something of which there can be too much.
type quiet struct{ text, why time.Time }

const (
	// textEvery is how often a job's words are printed at most: an agent says a
	// few sentences, a shell command may print for hours.
	textEvery = time.Second
	// whyEvery is how often a job that waits gives another reason for it.
	whyEvery = 30 * time.Second
	// maxLine is the length of a line, in cells, of a log, but for those that
	// are whole.
	maxLine = 240
)

func (p *plainView) Show(u api.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	c, before := p.board.apply(u)
	n, ok := noticeOf(u, c, before)
	if !ok || p.tooMuch(u, c, before) {
		return
	}
	line := p.columns.line(n, p.zone)
	if !n.whole {
		line = Cut(line, maxLine)
	}
	fmt.Fprintln(p.out, line) // a reader that went away does not concern the jobs
}

// tooMuch reports whether the line is one of too many alike.
func (p *plainView) tooMuch(u api.Update, c *card, before card) bool {
	if c == nil {
		return false
	}
	q := p.quiet[c.ID]
	if q == nil {
		q = &quiet{}
		p.quiet[c.ID] = q
	}
	switch {
	case u.Kind == api.UpdateEvent && u.Event.Kind == job.EventText:
		return soon(&q.text, u.Time, textEvery)
	case u.Kind != api.UpdateEvent && c.phase == waiting && before.phase == waiting:
		return soon(&q.why, u.Time, whyEvery)
	}
	return false
}

// soon reports whether now is less than d after *last, and otherwise notes it.
func soon(last *time.Time, now time.Time, d time.Duration) bool {
	if !last.IsZero() && now.Sub(*last) < d {
		return true
	}
	*last = now
	return false
}

func (p *plainView) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
}

// columns are the widths of the first columns of a notice, in cells.
type columns struct{ who, worker int }

func columnsOf(jobs []Job) columns {
	c := columns{who: len("agentcore"), worker: len("codex")}
	for _, j := range jobs {
		c.widen(Clean(j.Name), Clean(j.Worker))
	}
	return c
}

// widen makes room for a name: of what is not known at the beginning, too.
func (c *columns) widen(who, worker string) {
	c.who = min(max(c.who, Width(who)), 40)
	c.worker = min(max(c.worker, Width(worker)), 12)
}

// line returns the notice as text.
func (c *columns) line(n notice, zone *time.Location) string {
	if n.bare {
		return n.text
	}
	c.widen(n.who, n.worker)
	return strings.Join([]string{n.at.In(zone).Format(time.TimeOnly), Fit(n.who, c.who), "", Fit(n.worker, c.worker), "", n.text}, " ")
}
