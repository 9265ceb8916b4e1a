package travel

import (
	"slices"
	"strings"
	"testing"
)

// TestEntries: an entry is bounded in whatever pieces it comes, and comes whole.
func TestEntries(t *testing.T) {
	short, long := strings.Repeat("a", maxEntry), strings.Repeat("b", maxEntry+1)
	for _, size := range []int{1, 1000, maxEntry, 1 << 20} {
		for text, want := range map[string][]string{"x\x00" + short + "\x00y\x00": {"x", short, "y"}, "x\x00" + long + "\x00y\x00": nil} {
			var got []string
			e := entries{do: func(line string) error { got = append(got, line); return nil }}
			var err error
			for piece := range slices.Chunk([]byte(text), size) {
				if _, err = e.Write(piece); err != nil {
					break
				}
			}
			if want == nil && (err == nil || len(got) != 1) || want != nil && (err != nil || !slices.Equal(got, want)) {
				t.Errorf("in pieces of %d: %d entries, %v; want %d", size, len(got), err, len(want))
			}
		}
	}
}
