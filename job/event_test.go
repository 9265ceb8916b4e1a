package job

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCut(t *testing.T) {
	const mark = "\n… cut …\n"
	for _, c := range []struct {
		text string
		max  int
		want string
		cut  int64
	}{
		{"", 0, "", 0},
		{"abc", 3, "abc", 0},
		{"abc", 2, "", 3}, // no room for the mark
		{"abc", -1, "", 3},
		{strings.Repeat("x", 100), len(mark), "", 100},
		{strings.Repeat("a", 50) + strings.Repeat("z", 50), len(mark) + 4, "aa" + mark + "zz", 96},
		{strings.Repeat("a", 50) + strings.Repeat("z", 50), len(mark) + 5, "aa" + mark + "zzz", 95},
		{"aü" + strings.Repeat("-", 50) + "üz", len(mark) + 4, "a" + mark + "üz", 52}, // ü is two bytes: none is halved
	} {
		got, cut := Cut(c.text, c.max)
		if got != c.want || cut != c.cut {
			t.Errorf("Cut(%q, %d) = %q, %d; want %q, %d", c.text, c.max, got, cut, c.want, c.cut)
		}
	}
}

// TestCutHolds checks what Cut promises for any text.
func TestCutHolds(t *testing.T) {
	const mark = "\n… cut …\n"
	rapid.Check(t, func(r *rapid.T) {
		text := strings.Repeat(rapid.StringN(0, 20, -1).Draw(r, "text"), rapid.IntRange(1, 20).Draw(r, "times"))
		limit := rapid.IntRange(0, 200).Draw(r, "max")
		got, cut := Cut(text, limit)
		if len(text) <= limit {
			if got != text || cut != 0 {
				r.Fatalf("text that fits was cut: %q, %d", got, cut)
			}
			return
		}
		if len(got) > limit || !utf8.ValidString(got) {
			r.Fatalf("%d bytes, valid %v, of at most %d: %q", len(got), utf8.ValidString(got), limit, got)
		}
		if kept := len(got) - len(mark); got != "" && int64(len(text)-kept) != cut {
			r.Fatalf("%d of %d bytes are kept and %d cut", kept, len(text), cut)
		}
		if got == "" {
			return
		}
		at := -1 // the text may hold a mark of its own
		for i := range len(got) - len(mark) + 1 {
			if strings.HasPrefix(got[i:], mark) && strings.HasPrefix(text, got[:i]) && strings.HasSuffix(text, got[i+len(mark):]) {
				at = i
			}
		}
		if at < 0 {
			r.Fatalf("%q is not head, mark and tail of %q", got, text)
		}
	})
}

func ExampleCut() {
	text, cut := Cut(strings.Repeat("a", 20)+strings.Repeat("z", 20), 23)
	fmt.Printf("%q, %d bytes cut\n", text, cut)
	// Output: "aaaaa\n… cut …\nzzzzz", 30 bytes cut
}
