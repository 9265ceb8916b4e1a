package terminal

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/agentsched/agentsched/api"
)

func TestFrames(t *testing.T) {
	boards := []struct {
		name    string
		jobs    []Job
		updates []api.Update
		now     float64
	}{
		{"start", threeJobs, nil, 0},
		{"middle", threeJobs, story()[:22], 21},
		{"end", threeJobs, story(), 61},
		{"many", manyJobs(500), busy(manyJobs(500)), 30},
		{"empty", nil, nil, 0},
	}
	sizes := []struct{ w, h int }{{120, 30}, {80, 24}, {40, 12}, {20, 4}}
	for _, b := range boards {
		t.Run(b.name, func(t *testing.T) {
			var all strings.Builder
			for _, s := range sizes {
				board := newBoard(b.jobs, noon)
				for _, u := range b.updates {
					board.apply(u)
				}
				got := board.render(frame{width: s.w, height: s.h, now: at(b.now)})
				fits(t, got, s.w, s.h)
				harmless(t, got)
				fmt.Fprintf(&all, "--- %d x %d\n%s\n", s.w, s.h, got)

				coloured := board.render(frame{width: s.w, height: s.h, now: at(b.now), colour: true})
				if ansi.Strip(coloured) != got {
					t.Errorf("with colour, the text at %d x %d is another:\n%s", s.w, s.h, ansi.Strip(coloured))
				}
			}
			golden(t, "frame-"+b.name+".txt", all.String())
		})
	}
}

func TestLastFrame(t *testing.T) {
	board := newBoard(threeJobs, noon)
	got := board.render(frame{width: 80, height: 24, now: at(1), last: true})
	if strings.Contains(got, "Ctrl-C") || !strings.HasSuffix(got, "\n") {
		t.Errorf("the last frame is %q, want no hint and the cursor below", got)
	}
}

// fits fails the test if the frame is too large for a terminal.
func fits(t *testing.T, text string, w, h int) {
	t.Helper()
	lines := strings.Split(text, "\n")
	if len(lines) > h-2 && len(lines) > 2 {
		t.Errorf("%d lines on a terminal of %d", len(lines), h)
	}
	for _, l := range lines {
		if Width(l) > w {
			t.Errorf("line of %d cells on a terminal of %d: %q", Width(l), w, l)
		}
	}
}

// harmless fails the test if uncoloured text could act upon a terminal.
func harmless(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf) {
			t.Errorf("character %U in %q", r, text)
			return
		}
	}
}

func TestClean(t *testing.T) {
	cases := []struct{ in, want string }{
		{"plain", "plain"},
		{" a\tb\r\nc  d ", "a b c d"},
		{"\x1b[31mred\x1b[0m", "red"},
		{"\x1b]8;;http://a\x07link\x1b]8;;\x1b\\", "link"},
		{"\x1b]0;never ended", ""},
		{"a\u202egnp.exe", "agnp.exe"},
		{"a\u009b31mb", "ab"},
		{"x\x00\x08\x7fy", "xy"},
		{"\xff\xfe", "\uFFFD"},
		{"👩\u200d💻", "👩💻"},
		{"e\u0301\u0301\u0301\u0301", "e\u0301\u0301"},
		{"日本語", "日本語"},
		{"\u2028line\u0085sep", "line sep"},
	}
	for _, c := range cases {
		if got := Clean(c.in); got != c.want {
			t.Errorf("Clean(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add(hostile, 10)
	f.Add("日本語日本語", 5)
	f.Fuzz(func(t *testing.T, text string, w int) {
		got := Clean(text)
		harmless(t, got)
		if strings.ContainsAny(got, "\n\t\x1b") {
			t.Errorf("Clean(%q) = %q", text, got)
		}
		w = w&0x7f + 1
		if n := Width(Fit(got, w)); n != w {
			t.Errorf("Fit(%q, %d) takes %d cells", got, w, n)
		}
		for _, l := range wrap(got, w+1, 3) {
			if Width(l) > w+1 {
				t.Errorf("wrap(%q, %d) has a line of %d cells", got, w+1, Width(l))
			}
		}
	})
}

// Ten thousand updates a second must cost little.
func BenchmarkBoard(b *testing.B) {
	jobs := manyJobs(500)
	updates := busy(jobs)
	board := newBoard(jobs, noon)
	for i := 0; b.Loop(); i++ {
		board.apply(updates[i%len(updates)])
	}
}

func BenchmarkRender(b *testing.B) {
	jobs := manyJobs(500)
	board := newBoard(jobs, noon)
	for _, u := range busy(jobs) {
		board.apply(u)
	}
	for b.Loop() {
		board.render(frame{width: 200, height: 60, now: at(30), colour: true})
	}
}
