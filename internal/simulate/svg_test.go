package simulate_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/simulate"
)

// elements reads an SVG to its end and returns its elements and its texts.
func elements(t *testing.T, svg []byte) (names map[string]int, texts []string) {
	t.Helper()
	names = map[string]int{}
	dec := xml.NewDecoder(bytes.NewReader(svg))
	for {
		tok, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF):
			return names, texts
		case err != nil:
			t.Fatalf("not well-formed: %v\n%s", err, svg)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			names[tok.Name.Local]++
			for _, a := range tok.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("<%s %s=%q>", tok.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			texts = append(texts, string(tok))
		}
	}
}

func TestSVG(t *testing.T) {
	w := decode(t, mixed)
	w.Name = `<b> & "c".yaml`
	r, err := w.Run("fifo", newFIFO)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := simulate.SVG(&b, w, []*simulate.Result{r, r}); err != nil {
		t.Fatal(err)
	}
	names, texts := elements(t, b.Bytes())
	if names["svg"] != 1 || names["desc"] != 1 || names["script"]+names["image"]+names["foreignObject"]+names["use"] > 0 {
		t.Errorf("elements %v", names)
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{`<b> & "c".yaml`, "Shares over time", "fifo", "target", "100%", "Jain's index"} {
		if !strings.Contains(all, want) {
			t.Errorf("no text %q", want)
		}
	}
	// An area for each tenant in each panel, with the tenant's name.
	if n := strings.Count(b.String(), `class="area"`); n != 4 {
		t.Errorf("%d areas, want 4", n)
	}
	var again bytes.Buffer
	if err := simulate.SVG(&again, w, []*simulate.Result{r, r}); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("drawn again it differs (%v)", err)
	}
}

// Of many tenants the small ones are drawn as one; of nothing nothing is drawn.
func TestSVGOfManyAndOfNothing(t *testing.T) {
	var b strings.Builder
	b.WriteString("slots: 4\nduration: 10h\ntenants:\n")
	for i := range 30 {
		fmt.Fprintf(&b, "  - {name: tenant-%d-with-a-name-that-is-longer-than-fits, arrivals: [{waiting: 1}], size: {run_time: %dm}}\n", i, i+1)
	}
	nothing := "slots: 1\nduration: 1h\ntenants: [{name: a, arrivals: [{burst: 1, from: 59m}], size: {run_time: 1m}}, {name: b, arrivals: [{rate: 0.000001}], size: {run_time: 1m}}]"
	for text, areas := range map[string]int{b.String(): 9, nothing: 2} {
		w := decode(t, text)
		r, err := w.Run("fifo", newFIFO)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := simulate.SVG(&out, w, []*simulate.Result{r}); err != nil {
			t.Fatal(err)
		}
		elements(t, out.Bytes())
		if n := strings.Count(out.String(), `class="area"`); n != areas {
			t.Errorf("%d areas, want %d", n, areas)
		}
		var printed bytes.Buffer
		if err := simulate.Text(&printed, w, []*simulate.Result{r}, simulate.TextOptions{}); err != nil || strings.Contains(printed.String(), "NaN") {
			t.Errorf("%v\n%s", err, printed.String())
		}
	}
}
