package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// colourMode is when output has colours: auto, always or never.
type colourMode string

const (
	colourAuto   colourMode = "auto" // on a terminal, unless NO_COLOR is set or TERM is dumb
	colourAlways colourMode = "always"
	colourNever  colourMode = "never"
)

// String, Set and Type make it the value of a flag.
func (c *colourMode) String() string { return string(*c) }
func (c *colourMode) Type() string   { return "WHEN" }
func (c *colourMode) Set(text string) error {
	switch mode := colourMode(text); mode {
	case colourAuto, colourAlways, colourNever:
		*c = mode
		return nil
	}
	return fmt.Errorf("use %s, %s or %s", colourAuto, colourAlways, colourNever)
}

// colour reports whether out takes colours.
func (con *console) colour(out *os.File) bool {
	switch con.color {
	case colourAlways:
		return true
	case colourNever:
		return false
	}
	return out != nil && term.IsTerminal(int(out.Fd())) && con.getenv("NO_COLOR") == "" && con.getenv("TERM") != "dumb"
}

// stdoutFile returns standard output if it is a file, else nil.
func (con *console) stdoutFile() *os.File {
	file, _ := con.stdout.(*os.File)
	return file
}

// out is standard output for tables that a person reads: a *screen if it is a
// terminal or has colours.
func (con *console) out() io.Writer {
	file := con.stdoutFile()
	s := &screen{Writer: con.stdout, colour: con.colour(file)}
	if file != nil {
		if w, _, err := term.GetSize(int(file.Fd())); err == nil {
			s.width = w
		}
	}
	if s.width == 0 && !s.colour {
		return con.stdout // piped: not a byte more than the text
	}
	return s
}

// screen is where a person looks at a table: its states have colours, and its
// lines end with the terminal's. Everything else passes through as it is.
type screen struct {
	io.Writer
	colour bool
	width  int // of the terminal, in cells; 0: none
}

// table writes rows, whose cells end with a tab, below a head.
func table(w io.Writer, head string, rows func(w io.Writer)) error {
	s, ok := w.(*screen)
	if !ok {
		return alignedTable(w, head, rows)
	}
	var text bytes.Buffer
	if err := alignedTable(&text, head, rows); err != nil {
		return err
	}
	_, err := io.WriteString(s.Writer, s.lay(text.String(), head))
	return err
}

func alignedTable(w io.Writer, head string, rows func(w io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	rows(t)
	return t.Flush()
}

// section writes a table below a blank line.
func section(w io.Writer, head string, rows func(w io.Writer)) error {
	fmt.Fprintln(w)
	return table(w, head, rows)
}

// stateColumns are the heads of columns whose words have colours.
var stateColumns = map[string]bool{"STATE": true, "STATUS": true, "BREAKER": true}

// lay cuts the lines of an aligned table and gives colours to its head and the
// words of its states. The cells of a column begin below its head.
func (s *screen) lay(text, head string) string {
	lines := strings.SplitAfter(text, "\n")
	from, to := stateColumn([]rune(lines[0]), head)
	var b strings.Builder
	for n, line := range lines {
		line, end := strings.CutSuffix(line, "\n")
		if s.width > 0 {
			line = strings.TrimRight(ansi.TruncateWc(line, s.width, "…"), " ")
		}
		if s.colour {
			if n == 0 {
				line = sgr("1", line)
			} else {
				line = paintState([]rune(line), from, to)
			}
		}
		b.WriteString(line)
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// stateColumn returns where, in runes, the first column of states begins and the
// one after it does; 0, 0 if there is none.
func stateColumn(line []rune, head string) (from, to int) {
	if strings.HasPrefix(head, "PIPELINE\t") {
		return 0, 0 // a stage that is open is well, a breaker is not
	}
	at := 0
	for cell := range strings.SplitSeq(head, "\t") {
		if from > 0 || to > 0 {
			return from, at
		}
		if stateColumns[cell] {
			from, to = at, len(line)
		}
		at += len([]rune(cell))
		for at < len(line) && line[at] == ' ' {
			at++
		}
	}
	return from, to
}

func paintState(line []rune, from, to int) string {
	if to = min(to, len(line)); from >= to {
		return string(line)
	}
	word := strings.TrimRight(string(line[from:to]), " ")
	return string(line[:from]) + painted(word) + strings.Repeat(" ", to-from-len([]rune(word))) + string(line[to:])
}

// painted gives a state its colour.
func painted(word string) string {
	first, _, _ := strings.Cut(word, ":")
	switch first {
	case "completed", "up", "closed", "ok", "ended":
		return sgr("32", word)
	case "running", "dispatched", "starting":
		return sgr("36", word)
	case "waiting_approval", "half-open", "warning", "checkpointed", "cancelled", "missing", "stopping", "draining":
		return sgr("33", word)
	case "failed", "expired", "open", "error", "isolated", "down", "crashed":
		return sgr("31", word)
	case "pending", "skipped", "-":
		return sgr("2", word)
	}
	return word
}

// stateOn is a state as it is written to w.
func stateOn(w io.Writer, word string) string {
	if s, ok := w.(*screen); ok && s.colour {
		return painted(word)
	}
	return word
}

// sgr wraps text in a terminal attribute (ECMA-48, 8.3.117).
func sgr(attribute, text string) string {
	if text == "" {
		return ""
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[m"
}
