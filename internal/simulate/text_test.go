package simulate_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/simulate"
)

func TestTextIsPlainWhereAsked(t *testing.T) {
	w := decode(t, mixed)
	r, err := w.Run("fifo", newFIFO)
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range []simulate.TextOptions{{ASCII: true}, {}, {Width: 60}, {Width: 1}, {Colour: true}} {
		var b bytes.Buffer
		if err := simulate.Text(&b, w, []*simulate.Result{r, r}, opts); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if opts.ASCII && strings.IndexFunc(text, func(r rune) bool { return r > '~' }) >= 0 {
			t.Errorf("not ASCII:\n%s", text)
		}
		if strings.Contains(text, "\x1b") != opts.Colour {
			t.Errorf("%+v: colour:\n%q", opts, text)
		}
		if !opts.ASCII && !strings.Contains(text, "█") {
			t.Errorf("%+v: no blocks:\n%s", opts, text)
		}
		for line := range strings.Lines(text) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); strings.Contains(line, "▕") && n > max(opts.Width, 40) && opts.Width > 0 {
				t.Errorf("%+v: a row of %d columns: %s", opts, n, line)
			}
		}
	}
}
