package terminal

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Row is how one job ended, or stands.
type Row struct {
	Name     job.Name
	Worker   job.WorkerKind
	State    job.RunState
	Skipped  bool // it was not to run: Message says why
	Attempts int
	Time     time.Duration // of all attempts
	Usage    job.Usage     // of all attempts

	Files   int            // changed by the last attempt
	Class   job.ErrorClass // of a failure
	Message string         // what happened, or why it waits
	Hint    string         // what the user can do
	Answer  string         // the worker's final message; "" if it gave none
	// Final says that no other job builds on this one: its answer is one of those
	// that the jobs were run for.
	Final bool
	Patch string // path, "" if there is none
	Logs  string // path of the folder
}

// SummaryOptions of a Summary.
type SummaryOptions struct {
	Width   int           // of the terminal, in cells; 0 means 120
	Colour  bool          //
	Elapsed time.Duration // of the whole run; 0 leaves it out
	Paths   bool          // write where each patch and log lies, too
}

// Summary writes the table of all jobs, the beginnings of the answers that they
// were run for, what to do about failures, and a line of totals.
func Summary(out io.Writer, rows []Row, opts SummaryOptions) error {
	if opts.Width <= 0 {
		opts.Width = 120
	}
	var b strings.Builder
	writeTable(&b, rows, opts)
	more := writeAnswers(&b, rows, opts)
	writePaths(&b, rows, opts)
	if hint := seeMore(rows, more, opts); hint != "" {
		b.WriteString("\n" + paint(hint, faint, opts.Colour) + "\n")
	}
	b.WriteString("\n" + paint(totals(rows, opts), bold, opts.Colour) + "\n")
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}

// column is one column of the table but the last, RESULT, which takes what is
// left of the width.
type column struct {
	title string
	right bool
	text  func(Row) string
	width int // of its widest text, in cells
}

// minResult is the least room that RESULT needs to be a column.
const minResult = 24

func columnsFor(rows []Row, room int) (cols []column, result int) {
	cols = []column{
		{title: "JOB", text: func(r Row) string { return Cut(Clean(r.Name), 30) }},
		{title: "WORKER", text: func(r Row) string { return Cut(Clean(r.Worker), 12) }},
		{title: "STATE", text: func(r Row) string { return r.phase().String() }},
		{title: "ATTEMPTS", right: true, text: func(r Row) string { return fmt.Sprint(r.Attempts) }},
		{title: "TIME", right: true, text: func(r Row) string { return timeText(r.Time) }},
		{title: "TOKENS", right: true, text: func(r Row) string { return tokensText(r.Usage) }},
		{title: "COST", right: true, text: func(r Row) string { return Cost(r.Usage) }},
	}
	for i := range cols {
		cols[i].width = widest(len(cols[i].title), rows, cols[i].text)
	}
	// On a narrow terminal the result goes below its row, and then columns go.
	if left := room - total(cols); left >= minResult {
		return cols, left
	}
	for _, drop := range []string{"ATTEMPTS", "TOKENS", "WORKER", "TIME"} {
		if total(cols) <= room {
			break
		}
		for i, c := range cols {
			if c.title == drop {
				cols = append(cols[:i:i], cols[i+1:]...)
				break
			}
		}
	}
	if over := total(cols) - room; over > 0 {
		cols[0].width = max(cols[0].width-over, 4)
	}
	return cols, 0
}

const gap = "  "

func total(cols []column) int {
	n := 0
	for _, c := range cols {
		n += c.width + len(gap)
	}
	return n
}

func writeTable(b *strings.Builder, rows []Row, opts SummaryOptions) {
	cols, result := columnsFor(rows, opts.Width)
	var titles []cell
	for _, c := range cols {
		titles = append(titles, cell{text: c.title, width: c.width, right: c.right})
	}
	titles = append(titles, cell{text: "RESULT", width: result})
	b.WriteString(paint(row(gap, false, titles...), bold, opts.Colour) + "\n")
	for _, r := range rows {
		var cells []cell
		for _, c := range cols {
			one := cell{text: c.text(r), width: c.width, right: c.right}
			if c.title == "STATE" {
				one.style = r.phase().style()
			}
			cells = append(cells, one)
		}
		most := 3
		if r.State == job.RunCompleted && len(rows) > manyRows {
			most = 1
		}
		if result > 0 {
			lines := wrap(r.result(), result, most)
			b.WriteString(row(gap, opts.Colour, append(cells, cell{text: lines[0], width: result})...) + "\n")
			for _, more := range lines[1:] {
				b.WriteString(strings.Repeat(" ", total(cols)) + more + "\n")
			}
			continue
		}
		b.WriteString(row(gap, opts.Colour, cells...) + "\n")
		for _, l := range wrap(r.result(), opts.Width-4, most) {
			if l != "" {
				b.WriteString("    " + l + "\n")
			}
		}
	}
}

func (r Row) phase() phase {
	if r.Skipped {
		return skipped
	}
	return phaseOf(r.State, "")
}

// result says in one sentence what came of the job.
func (r Row) result() string {
	message := Clean(r.Message)
	switch {
	case r.State == job.RunCompleted:
		said := orSay(Clean(FirstLine(r.Answer)), message)
		switch {
		case r.Files == 0:
			return orSay(said, "no file changed")
		case said == "":
			return plural(r.Files, "file", "files") + " changed"
		}
		return plural(r.Files, "file", "files") + " changed: " + said
	case r.Class != job.NoError && message != "":
		return string(r.Class) + ": " + message
	case r.Class != job.NoError:
		return string(r.Class)
	}
	return message
}

// A summary shows at most so many answers, each with so many lines. Of more than
// manyRows jobs that went well the table has one line each.
const (
	maxAnswers  = 8
	answerLines = 6
	manyRows    = 10
)

// writeAnswers writes the beginnings of answers that are longer than the table
// shows. It reports whether there is more of one.
func writeAnswers(b *strings.Builder, rows []Row, opts SummaryOptions) (more bool) {
	var long []Row
	for _, r := range rows {
		if r.State == job.RunCompleted && len(answerOf(r)) > 1 {
			more = true
			if r.Final {
				long = append(long, r)
			}
		}
	}
	if len(long) > maxAnswers {
		return more
	}
	for _, r := range long {
		lines := answerOf(r)
		b.WriteString("\n" + paint(Clean(r.Name), bold, opts.Colour) + "\n")
		for _, l := range lines[:min(len(lines), answerLines)] {
			b.WriteString(strings.TrimRight("  "+Cut(l, opts.Width-2), " ") + "\n")
		}
		if left := len(lines) - answerLines; left > 0 {
			b.WriteString("  " + paint("… "+plural(left, "more line", "more lines"), faint, opts.Colour) + "\n")
		}
	}
	return more
}

// answerOf returns the lines of an answer that hold something.
func answerOf(r Row) []string {
	var lines []string
	for l := range strings.Lines(r.Answer) {
		if text := Clean(l); text != "" {
			indent := len(l) - len(strings.TrimLeft(l, " "))
			lines = append(lines, strings.Repeat(" ", min(indent, 8))+text)
		}
	}
	return lines
}

// FirstLine is the first line of a text that holds something.
func FirstLine(text string) string {
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			return l
		}
	}
	return ""
}

// seeMore says how to see what the summary does not show.
func seeMore(rows []Row, answers bool, opts SummaryOptions) string {
	var parts []string
	if answers {
		parts = append(parts, "whole answer: scheduler show JOB --answer")
	}
	for _, r := range rows {
		if r.Patch != "" {
			parts = append(parts, "patch: scheduler diff JOB, scheduler apply JOB")
			break
		}
	}
	for _, r := range rows {
		if r.Logs != "" && !opts.Paths {
			parts = append(parts, "logs: scheduler logs JOB, scheduler show JOB")
			break
		}
	}
	return strings.Join(parts, "\n")
}

// writePaths names what each job left, if that is wanted, and what can be done about
// failures. Paths are never cut: they are there to be copied.
func writePaths(b *strings.Builder, rows []Row, opts SummaryOptions) {
	for _, r := range rows {
		if !opts.Paths {
			r.Patch, r.Logs = "", ""
		}
		hint := r.Hint
		if r.State == job.RunCompleted {
			hint = ""
		}
		if r.Patch == "" && r.Logs == "" && hint == "" {
			continue
		}
		b.WriteString("\n" + paint(Clean(r.Name), bold, opts.Colour) + "\n")
		for _, line := range []struct{ what, text string }{{"patch", r.Patch}, {"logs ", r.Logs}} {
			if line.text != "" {
				fmt.Fprintf(b, "  %s  %s\n", line.what, pathText(line.text))
			}
		}
		if hint != "" {
			for i, l := range wrap(Clean(hint), opts.Width-9, 5) {
				title := "hint "
				if i > 0 {
					title = "     "
				}
				fmt.Fprintf(b, "  %s  %s\n", title, l)
			}
		}
	}
}

// pathText is a path as it is, or quoted if it holds something that would act
// upon the terminal.
func pathText(path string) string {
	if Clean(path) == path {
		return path
	}
	return fmt.Sprintf("%q", path)
}

// totals is the last line.
func totals(rows []Row, opts SummaryOptions) string {
	var usage job.Usage
	count := map[job.RunState]int{}
	for _, r := range rows {
		usage = usage.Add(r.Usage)
		count[phaseNames[r.phase()]]++
	}
	line := plural(len(rows), "job", "jobs") + ":"
	separator := " "
	for _, state := range []job.RunState{job.RunCompleted, job.RunFailed, job.RunCancelled, job.WaitingApproval, job.Checkpointed, job.Running, job.Pending} {
		if count[state] > 0 {
			line += fmt.Sprintf("%s%d %s", separator, count[state], state)
			separator = ", "
		}
	}
	for _, part := range []string{elapsedText(opts.Elapsed), usageText(usage), Cost(usage)} {
		if part != "" && part != "-" {
			line += " · " + part
		}
	}
	return line
}

func elapsedText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return timeText(d)
}

func usageText(u job.Usage) string {
	if u.Tokens() == 0 {
		return ""
	}
	return Count(u.Tokens()) + " tokens"
}
