package terminal

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// maxRaw is how much of a foreign text is looked at, in bytes: more than any
// terminal is wide.
const maxRaw = 2 << 10

// Clean returns text that came from a worker or a file as one line that does
// nothing on a terminal but stand there: escape sequences, control and format
// characters (with them bidirectional overrides and joiners) are gone, white
// space of any kind is one space.
func Clean[T ~string](foreign T) string {
	text := string(foreign)
	if len(text) > maxRaw {
		end := maxRaw
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	var b strings.Builder
	space := false
	for r := range tameRunes(text) {
		if unicode.IsSpace(r) {
			space = true
			continue
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return b.String()
}

// cleanLines returns the lines of a text as Clean would, but for their length and the
// spaces in them. A tab is four spaces.
func cleanLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		var b strings.Builder
		for r := range tameRunes(line) {
			switch {
			case r == '\t':
				b.WriteString("    ")
			case r == '\n', r == '\r':
			case unicode.IsSpace(r):
				b.WriteByte(' ')
			default:
				b.WriteRune(r)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// tameRunes goes through the characters of a text that do nothing on a terminal, and its
// white space.
func tameRunes(text string) iter.Seq[rune] {
	return func(yield func(rune) bool) {
		marks := 0
		for _, r := range ansi.Strip(sevenBit(strings.ToValidUTF8(text, "\uFFFD"))) {
			switch {
			case unicode.IsSpace(r):
			case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Variation_Selector):
				continue
			case unicode.In(r, unicode.Mn, unicode.Me):
				// Letters of some scripts carry two marks; a tower of them is made
				// to cover the lines above.
				if marks++; marks > 2 {
					continue
				}
			default:
				marks = 0
			}
			if !yield(r) {
				return
			}
		}
	}
}

// sevenBit replaces each control character of the C1 set by the escape sequence
// that means the same (ECMA-48, 5.3), so that it is found together with what
// belongs to it. NEL is left as the white space that it is.
func sevenBit(text string) string {
	if !strings.Contains(text, "\xc2") { // the first byte of all of them
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if r >= 0x80 && r < 0xa0 && r != '\u0085' {
			b.WriteByte(0x1b)
			r -= 0x40
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Width is the number of terminal cells that text takes. It counts each
// character for itself, as the renderer does; Clean has taken out what would
// join them.
func Width(text string) int { return ansi.StringWidthWc(text) }

// Cut returns text in at most w cells, the end replaced by "…" if need be. Escape
// sequences that paint has added take no room.
func Cut(text string, w int) string {
	if w <= 0 {
		return ""
	}
	return ansi.TruncateWc(text, w, "…")
}

// Fit returns text in exactly w cells, on the left of them.
func Fit(text string, w int) string {
	text = Cut(text, w)
	return text + strings.Repeat(" ", max(w-Width(text), 0))
}

// wrap returns text as at most n lines of at most w cells, broken at spaces
// only, so that what is to be copied stays whole where it fits in a line.
func wrap(text string, w, n int) []string {
	var lines []string
	line := ""
	for rest := text; ; {
		word, more, found := strings.Cut(rest, " ")
		switch {
		case line == "":
			line = word
		case Width(line)+1+Width(word) <= w:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
		for Width(line) > w {
			part := ansi.TruncateWc(line, w, "")
			if part == "" { // not one character fits
				return append(lines, "")
			}
			lines, line = append(lines, part), line[len(part):]
		}
		if !found {
			lines = append(lines, line)
			break
		}
		rest = more
	}
	if len(lines) > n {
		lines[n-1] = Cut(strings.Join(lines[n-1:], " "), w)
		lines = lines[:n]
	}
	return lines
}

// style is a terminal attribute, the parameter of SGR (ECMA-48, 8.3.117).
type style string

const (
	plain   style = ""
	bold    style = "1"
	faint   style = "2"
	reverse style = "7"
	red     style = "31"
	green   style = "32"
	yellow  style = "33"
	cyan    style = "36"
)

// paint returns text in the style, or as it is without colour. What is reversed is not a
// colour: without it nobody would see what is selected.
func paint(text string, s style, colour bool) string {
	if s == plain || text == "" || !colour && s != reverse {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[m"
}
