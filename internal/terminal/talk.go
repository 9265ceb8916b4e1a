package terminal

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/agentsched/agentsched/job"
)

// TalkLine is one line of a conversation as it is shown. A line without a time and without Who goes on
// with what the one above it says.
type TalkLine struct {
	At   time.Time // zero: of no time
	Who  string    // who speaks, or what the line is about
	Text string    // clean, in one line

	style  style
	code   bool // not words: it is broken where the terminal ends
	nested bool // a subagent's
}

// Folded is something of a conversation that was shown in part: its whole is with the scheduler. Exactly
// one field beside Job says what it is; none: what the job was to do.
type Folded struct {
	Job               job.ID
	Cursor            int64 // of an event
	Message, Question int   // its number
	Answer            bool  // the job's
}

// maxFolded is how many folded things are remembered; the oldest are forgotten.
const maxFolded = 10_000

// Transcript writes down a conversation. It keeps little of it: what it folds is remembered by where
// the whole is.
type Transcript struct {
	folded  []Folded
	gone    int // how many were forgotten
	attempt int // of the latest event
	call    string
	said    string // the agent's last words
}

// Folded returns what was folded under that number; 0 is the last. Why says why there is none.
func (t *Transcript) Folded(n int) (f Folded, why string) {
	last := t.gone + len(t.folded)
	if n == 0 {
		n = last
	}
	switch {
	case last == 0:
		return f, "nothing is folded yet"
	case n < 1 || n > last:
		return f, fmt.Sprintf("nothing is folded as %d: the last is %d", n, last)
	case n <= t.gone:
		return f, fmt.Sprintf("%d is too long ago: the job's log has it", n)
	}
	return t.folded[n-1-t.gone], ""
}

// fold notes that something was shown in part, and returns its number.
func (t *Transcript) fold(f Folded) int {
	if len(t.folded) == maxFolded {
		t.folded, t.gone = append(t.folded[:0], t.folded[1:]...), t.gone+1
	}
	t.folded = append(t.folded, f)
	return t.gone + len(t.folded)
}

// part is how much of a text is shown at once.
type part struct {
	lines int
	cells int  // of a line
	end   bool // its end rather than its begin
	code  bool
	exact bool // it is what is judged or run: nothing is left out that a terminal would not show
}

// How much of each is shown before it is folded.
var (
	ofPrompt = part{lines: 12, cells: 2000}
	ofWords  = part{lines: 40, cells: 4000}
	ofCall   = part{lines: 3, cells: 400, code: true, exact: true}
	ofOutput = part{lines: 4, cells: 400, end: true, code: true}
	ofDiff   = part{code: true, exact: true}
)

// show returns the lines of a text, folded to a part of it as f; a nil f shows all of it.
func (t *Transcript) show(text string, p part, f *Folded) []TalkLine {
	if p.exact {
		text = Visible(strings.ReplaceAll(text, "\r\n", "\n"), "\n\t")
	}
	lines := cleanLines(strings.Trim(text, "\n"))
	var out []TalkLine
	put := func(lines []string) {
		for _, l := range lines {
			out = append(out, TalkLine{Text: l, code: p.code})
		}
	}
	if f == nil {
		put(lines)
		return out
	}
	left, cut := len(lines)-p.lines, false
	if left > 0 && left <= 2 && p.lines > 0 {
		left = 0 // a line that says so would take as much room
	}
	kept := lines
	if left > 0 && p.end {
		kept = lines[left:]
	} else if left > 0 {
		kept = lines[:p.lines]
	}
	for i, l := range kept {
		if short := Cut(l, p.cells); short != l {
			kept[i], cut = short, true
		}
	}
	more := ""
	switch {
	case left > 0 && p.lines == 0:
		more = plural(left, "line", "lines")
	case left > 0:
		more = plural(left, "more line", "more lines")
	case cut:
		more = "longer lines"
	}
	if more != "" {
		more = fmt.Sprintf("… %s: /more %d", more, t.fold(*f))
	}
	fold := TalkLine{Text: more, style: faint}
	if more != "" && p.end {
		out = append(out, fold)
	}
	put(kept)
	if more != "" && !p.end {
		out = append(out, fold)
	}
	return out
}

// Columns of a conversation, in cells.
const (
	timeWidth = 9
	whoWidth  = 9
	maxWho    = 24
	// narrowTalk is the width below which times are left out, and nothing is aligned.
	narrowTalk = 64
)

// lay returns a line in rows of at most w cells; with 0 in one row, however long it is.
func (l *TalkLine) lay(w int, colour bool, zone *time.Location) []string {
	who := Cut(l.Who, maxWho)
	indent := strings.Repeat(" ", timeWidth+whoWidth+1)
	head := strings.Repeat(" ", timeWidth)
	switch {
	case w > 0 && w < narrowTalk:
		indent, head = "  ", "  "
		if who != "" {
			head = who + " "
		}
	case l.At.IsZero():
		head += Fit(who, max(whoWidth, Width(who))) + " "
	default:
		head = l.At.In(zone).Format(time.TimeOnly) + " " + Fit(who, max(whoWidth, Width(who))) + " "
	}
	if l.nested {
		indent, head = indent+"  ", head+"  "
	}
	if w == 0 {
		return []string{strings.TrimRight(head+l.Text, " ")}
	}
	var rows []string
	text := l.Text
	if room := max(w-Width(head), 8); l.code {
		for first := true; first || text != ""; first = false {
			row := ansi.TruncateWc(text, room, "")
			if row == "" && text != "" {
				break // not one character fits
			}
			rows, text = append(rows, row), text[len(row):]
		}
	} else {
		words := strings.TrimLeft(text, " ")
		left := (len(text) - len(words)) % room
		rows = wrap(words, room-left, len(text)+1)
		rows[0] = strings.Repeat(" ", left) + rows[0]
	}
	for i := range rows {
		if i > 0 {
			head = indent
		}
		if rows[i] == "" {
			head = strings.TrimRight(head, " ")
		}
		rows[i] = Cut(paint(head, faint, colour)+paint(rows[i], l.style, colour), w)
	}
	return rows
}

// WriteTalk writes a conversation without colours, each line in one.
func WriteTalk(w io.Writer, lines []TalkLine) error {
	var b strings.Builder
	for i := range lines {
		b.WriteString(lines[i].lay(0, false, time.Local)[0] + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
