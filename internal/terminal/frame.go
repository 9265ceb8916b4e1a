package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// frame is what one drawing of the live view depends on.
type frame struct {
	width, height int // of the terminal, in cells
	now           time.Time
	colour        bool
	last          bool // nothing follows: no hint, and the cursor goes below
}

// render draws the board: a header, as many jobs as there is room for, what is
// left out, and a hint. It takes at most width cells a line and leaves two of
// the terminal's lines free, through which the lasting lines scroll away.
func (b *board) render(f frame) string {
	w := max(f.width, 10)
	room := max(f.height-2, 2)
	lines := []string{b.header(f, w)}
	foot := footer(f, w)
	room -= 1 + len(foot)

	shown := b.list
	var more string
	if len(shown) > room {
		shown = b.choose(max(room-1, 0))
		more = b.leftOut(shown)
	}
	l := layoutOf(w, b.list)
	for _, c := range shown {
		lines = append(lines, l.row(c, f))
	}
	if more != "" && room > 0 {
		lines = append(lines, paint(Cut("  "+more, w), faint, f.colour))
	}
	lines = append(lines, foot...)
	text := strings.Join(lines, "\n")
	if f.last {
		text += "\n"
	}
	return text
}

func footer(f frame, w int) []string {
	if f.last || f.height < 5 {
		return nil
	}
	return []string{paint(Cut("Ctrl-C: stop gracefully, twice: at once", w), faint, f.colour)}
}

// short are the states where there is little room.
var short = map[job.RunState]string{
	job.Running: "run", job.Pending: "pend", job.WaitingApproval: "appr", job.Checkpointed: "chkp",
	job.RunCompleted: "compl", job.RunFailed: "fail", job.RunCancelled: "canc",
}

// header counts the jobs; what does not fit is left out from the right, a part
// at a time.
func (b *board) header(f frame, w int) string {
	t := b.tally()
	type part struct {
		text  string
		style style
	}
	between := " · "
	if w < narrow {
		between = ", "
	}
	var parts []part
	for _, state := range tallied {
		st, always := plain, false
		switch state {
		case job.Running, job.Pending:
			always = true
		case job.RunCompleted:
			st, always = green, true
		case job.RunFailed:
			st = red
		case job.RunCancelled, job.WaitingApproval, job.Checkpointed:
			st = yellow
		}
		if t.of[state] == 0 && !always {
			continue
		}
		word := string(state)
		if w < narrow {
			word = short[state]
		}
		p := part{fmt.Sprintf("%d %s", t.of[state], word), bold}
		if st != plain {
			p.style += ";" + st
		}
		parts = append(parts, p)
	}
	if cost := Cost(t.usage); cost != "-" {
		parts = append(parts, part{cost, bold})
	}
	parts = append(parts, part{timeText(f.now.Sub(b.began)), plain})
	if n := t.usage.Tokens(); n > 0 {
		parts = append(parts, part{Count(n) + " tokens", plain})
	}
	if b.missed > 0 {
		parts = append(parts, part{plural(b.missed, "update", "updates") + " missed", faint})
	}
	var line strings.Builder
	used := 0
	for i, p := range parts {
		if i > 0 {
			if used+Width(between)+Width(p.text) > w {
				break
			}
			line.WriteString(between)
			used += Width(between)
		}
		text := Cut(p.text, w-used)
		line.WriteString(paint(text, p.style, f.colour))
		used += Width(text)
	}
	return line.String()
}

// choose picks n jobs to show: those that run first, then of the others the
// latest to have ended and the next to run, about half and half; in the order
// of submission.
func (b *board) choose(n int) []*card {
	var live, over, next []*card
	for _, c := range b.list {
		switch {
		case c.phase.live():
			live = append(live, c)
		case c.phase.ended():
			over = append(over, c)
		default:
			next = append(next, c)
		}
	}
	slices.SortStableFunc(over, func(x, y *card) int { return cmp.Compare(y.order, x.order) })
	picked := live[:min(len(live), n)]
	n -= len(picked)
	ofNext := min(len(next), max(n/2, n-len(over)))
	ofOver := min(len(over), n-ofNext)
	chosen := map[*card]bool{}
	for _, cards := range [][]*card{picked, over[:ofOver], next[:ofNext]} {
		for _, c := range cards {
			chosen[c] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(b.list), func(c *card) bool { return !chosen[c] })
}

// leftOut says which jobs are not among the shown.
func (b *board) leftOut(shown []*card) string {
	rest := newBoard(nil, b.began)
	in := map[*card]bool{}
	for _, c := range shown {
		in[c] = true
	}
	for _, c := range b.list {
		if !in[c] {
			rest.list = append(rest.list, c)
		}
	}
	t := rest.tally()
	var parts []string
	for _, state := range tallied {
		if n := t.of[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return "… and " + strings.Join(parts, ", ")
}

// layout is the widths of a row's columns, in cells; 0 leaves one out.
type layout struct{ name, worker, state, elapsed, tokens, cost, doing int }

// narrow is the width, in cells, below which words are shortened.
const narrow = 64

// layoutOf divides w cells: the narrower, the fewer columns.
func layoutOf(w int, cards []*card) layout {
	name, worker := widest(4, cards, (*card).name), widest(5, cards, func(c *card) string { return Clean(c.Worker) })
	state := widest(9, cards, func(c *card) string { return c.phase.String() })
	var l layout
	switch {
	case w >= 160:
		l = layout{name: min(name, 48), worker: min(worker, 20), state: state, elapsed: 6, tokens: 6, cost: 9}
	case w >= 100:
		l = layout{name: min(name, 24), worker: min(worker, 10), state: state, elapsed: 6, tokens: 6, cost: 9}
	case w >= narrow:
		l = layout{name: min(name, 18), worker: min(worker, 8), state: state, elapsed: 6, cost: 8}
	default:
		l = layout{name: min(name, max(w/3, 4)), state: 1, elapsed: 6}
	}
	used := 0
	for _, col := range []int{l.name, l.worker, l.state, l.elapsed, l.tokens, l.cost} {
		if col > 0 {
			used += col + 1
		}
	}
	l.doing = max(w-used, 0)
	return l
}

// marks stand for the phases where there is no room for their names.
var marks = [...]string{".", ">", ">", "?", "=", "+", "x", "-"}

func (l layout) row(c *card, f frame) string {
	state := c.phase.String()
	if l.state == 1 {
		state = marks[c.phase]
	}
	elapsed, cost, tokens := "", "", ""
	if !c.began.IsZero() {
		elapsed, cost, tokens = timeText(c.elapsed(f.now)), Cost(c.usage), tokensText(c.usage)
	}
	doing := plain
	if !c.phase.live() {
		doing = faint
	}
	return row(" ", f.colour,
		cell{text: c.name(), width: l.name}, cell{text: Clean(c.Worker), width: l.worker}, cell{text: state, width: l.state, style: c.phase.style()},
		cell{text: elapsed, width: l.elapsed, right: true}, cell{text: tokens, width: l.tokens, right: true}, cell{text: cost, width: l.cost, right: true},
		cell{text: c.doing(), width: l.doing, style: doing})
}
