package terminal

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

var ctrl = map[string]tea.Key{"left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight}, "home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd},
	"bs": {Code: tea.KeyBackspace}, "del": {Code: tea.KeyDelete}, "up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}}

// keysOf returns keys, each a character, a name in <> or a letter with ^ before it.
func keysOf(text string) (keys []tea.KeyPressMsg) {
	for text != "" {
		r := []rune(text)
		if name, rest, ok := strings.Cut(text[1:], ">"); r[0] == '<' && ok {
			keys, text = append(keys, tea.KeyPressMsg(ctrl[name])), rest
			continue
		}
		if r[0] == '^' {
			keys, text = append(keys, tea.KeyPressMsg{Code: r[1], Mod: tea.ModCtrl}), string(r[2:])
			continue
		}
		keys, text = append(keys, tea.KeyPressMsg{Code: r[0], Text: string(r[0])}), string(r[1:])
	}
	return keys
}

func TestTyping(t *testing.T) {
	for _, c := range []struct {
		keys string
		many bool
		want string // with | where the cursor stands
	}{
		{"abc", false, "abc|"},
		{"abc<left><left>x", false, "ax|bc"},
		{"bc^aa^ed", false, "abcd|"},
		{"日本語<left><bs>", false, "日|語"},
		{"abc<home><del>", false, "|bc"},
		{"<bs><del><left><right>", false, "|"},
		{"one two  ^w", false, "one |"},
		{"one two<home>^w^k", false, "|"},
		{"one two<left><left>^u", false, "|wo"},
		{"one two<left><left>^k", false, "one t|"},
		{"a^jb", true, "a\nb|"},
		{"a^jb", false, "ab|"},
		{"^bx^fy", false, "xy|"},
	} {
		line := typing{many: c.many}
		for _, k := range keysOf(c.keys) {
			line.key(k)
		}
		if got := string(line.text[:line.at]) + "|" + string(line.text[line.at:]); got != c.want {
			t.Errorf("%q makes %q, want %q", c.keys, got, c.want)
		}
	}
}

// What is pasted is bounded and cannot act upon the terminal.
func TestPasted(t *testing.T) {
	line := typing{most: 20, many: true}
	line.insert("a\tb\r\nc\x1b[2J\u202e\x00" + strings.Repeat("x", 100))
	if got := line.String(); got != "a b\nc[2J"+strings.Repeat("x", 12) {
		t.Errorf("it is %q", got)
	}
	var one typing
	one.insert("a\nb" + strings.Repeat("x", 1000))
	if got := one.String(); !strings.HasPrefix(got, "a bxxx") || len(line.text) > maxInput {
		t.Errorf("it is %q", got)
	}
}

// The cursor is always to be seen, and the window fits.
func TestWindow(t *testing.T) {
	var line typing
	line.insert(strings.Repeat("漢a字\u0301b", 40))
	for w := 3; w < 40; w++ {
		for line.at = 0; line.at <= len(line.text); line.at++ {
			before, after := line.window(w)
			if Width(before)+Width(after) > w-1 {
				t.Fatalf("%d cells of %d: %q %q", Width(before)+Width(after), w, before, after)
			}
			if !strings.HasSuffix(string(line.text[:line.at]), before) || !strings.HasPrefix(string(line.text[line.at:]), after) {
				t.Fatalf("%q and %q are not around the cursor at %d", before, after, line.at)
			}
			if shown := line.line("> ", w); Width(shown) > w || w > 8 && !strings.Contains(shown, "_") {
				t.Fatalf("%q in %d cells", shown, w)
			}
		}
	}
}

// talkOf returns the model of a conversation without a terminal.
func talkOf(w int) *talkModel {
	m := &talkModel{talk: &Talk{written: make(chan Written, maxWritten)}, input: typing{many: true}}
	m.Update(tea.WindowSizeMsg{Width: w, Height: 24})
	return m
}

func TestWritten(t *testing.T) {
	m := talkOf(80)
	for _, k := range keysOf("<enter>one<enter>two^jlines<enter>ab<up>x<enter>cd<up><up><down><down>e<enter>gone<esc>^o") {
		m.Update(k)
	}
	for _, want := range []string{"one", "two\nlines", "two\nlinesx", "cde", "/more"} {
		if got := <-m.talk.written; got.Text != want {
			t.Errorf("%q was written, want %q", got, want)
		}
	}
	for range maxWritten {
		m.talk.offer(Written{Text: "x"})
	}
	for _, k := range keysOf("kept<enter>") {
		m.Update(k)
	}
	if m.input.String() != "kept" || m.say == "" {
		t.Errorf("what nobody takes is lost: %q stands there, it says %q", m.input.String(), m.say)
	}
	if _, cmd := m.Update(keysOf("^d")[0]); cmd != nil {
		t.Error("Ctrl-D leaves although something is written")
	}
	m.input.set("")
	if _, cmd := m.Update(keysOf("^d")[0]); cmd == nil {
		t.Error("Ctrl-D does not leave")
	}
	m = talkOf(80)
	if _, cmd := m.Update(keysOf("^c")[0]); cmd == nil {
		t.Error("Ctrl-C does not leave")
	}
}

// What stands below a conversation fits, and says what is asked before how things stand.
func TestTalkFrames(t *testing.T) {
	for w := 10; w < 150; w += 9 {
		m := talkOf(w)
		m.input.insert(strings.Repeat("漢字", 50))
		for _, stand := range []TalkStand{{Text: "fix-login  running"}, {Text: strings.Repeat("lost", 50), Lost: true}, {Text: "x", Asks: strings.Repeat("asks", 60), How: "yes · no WORDS · always · stop"}} {
			m.Update(stand)
			v := m.View()
			lines := strings.Split(v.Content, "\n")
			if want := 2 + min(len(stand.Asks), 1); len(lines) != want || v.Cursor.Y != want-1 || v.Cursor.X >= w {
				t.Fatalf("at %d: %d lines, the cursor at %v: %q", w, len(lines), v.Cursor.Position, v.Content)
			}
			for _, l := range lines {
				if Width(l) > w {
					t.Fatalf("at %d: %d cells in %q", w, Width(l), l)
				}
			}
			if stand.Asks != "" && w > 60 && !strings.HasSuffix(lines[0], stand.How) {
				t.Fatalf("at %d: it does not say how to answer: %q", w, lines[0])
			}
		}
	}
}
