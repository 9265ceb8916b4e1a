package terminal

import (
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
)

// maxInput is how much can be typed where nothing else is said, in characters.
const maxInput = 500

// typing is what somebody types. The zero value is an empty line of at most maxInput characters.
type typing struct {
	text []rune
	at   int  // where the cursor stands: before text[at]
	most int  // characters; 0: maxInput
	many bool // it may have several lines, of which all but the last were pasted or end with Ctrl-J
}

func (t *typing) String() string { return string(t.text) }

// set replaces what was typed.
func (t *typing) set(text string) {
	t.text, t.at = t.text[:0], 0
	t.insert(text)
}

// insert puts text where the cursor stands, of which only what can be shown.
func (t *typing) insert(text string) {
	most := t.most
	if most == 0 {
		most = maxInput
	}
	var in []rune
	for _, r := range strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n") {
		switch {
		case len(t.text)+len(in) >= most:
		case r == '\n' && t.many:
			in = append(in, r)
		case unicode.IsSpace(r):
			in = append(in, ' ')
		case unicode.IsPrint(r):
			in = append(in, r)
		}
	}
	t.text = append(t.text[:t.at], append(in, t.text[t.at:]...)...)
	t.at += len(in)
}

// remove takes out text[from:to].
func (t *typing) remove(from, to int) {
	t.text = append(t.text[:from], t.text[to:]...)
	t.at = from
}

// key edits the line, with the keys of a shell.
func (t *typing) key(k tea.KeyPressMsg) {
	switch k.String() {
	case "left", "ctrl+b":
		t.at = max(t.at-1, 0)
	case "right", "ctrl+f":
		t.at = min(t.at+1, len(t.text))
	case "home", "ctrl+a":
		t.at = 0
	case "end", "ctrl+e":
		t.at = len(t.text)
	case "backspace", "ctrl+h":
		t.remove(max(t.at-1, 0), t.at)
	case "delete", "ctrl+d":
		t.remove(t.at, min(t.at+1, len(t.text)))
	case "ctrl+u":
		t.remove(0, t.at)
	case "ctrl+k":
		t.remove(t.at, len(t.text))
	case "ctrl+w":
		from := t.at
		for from > 0 && unicode.IsSpace(t.text[from-1]) {
			from--
		}
		for from > 0 && !unicode.IsSpace(t.text[from-1]) {
			from--
		}
		t.remove(from, t.at)
	case "ctrl+j":
		if t.many {
			t.insert("\n")
		}
	default:
		t.insert(k.Key().Text)
	}
}

// window returns the part around the cursor that fits into w cells with a cell for the cursor, before
// it and behind it. Ends of lines are shown as ⏎.
func (t *typing) window(w int) (before, after string) {
	room := w - 1
	from, to := t.at, t.at
	for ; from > 0 && Width(string(shownRune(t.text[from-1]))) <= room; from-- {
		room -= Width(string(shownRune(t.text[from-1])))
	}
	for ; to < len(t.text) && Width(string(shownRune(t.text[to]))) <= room; to++ {
		room -= Width(string(shownRune(t.text[to])))
	}
	show := func(text []rune) string { return strings.ReplaceAll(string(text), "\n", "⏎") }
	return show(t.text[from:t.at]), show(t.text[t.at:to])
}

func shownRune(r rune) rune {
	if r == '\n' {
		return '⏎'
	}
	return r
}

// line shows what is typed behind a prompt in w cells, with a cursor that is drawn.
func (t *typing) line(prompt string, w int) string {
	before, after := t.window(max(w-Width(prompt), 2))
	return Cut(prompt+before+"_"+after, w)
}
