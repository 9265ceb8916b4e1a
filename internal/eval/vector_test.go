package eval

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// vector is one with all values.
func vector(quality, adherence, speed, cost, errors, revisions float64) Vector {
	return Vector{&quality, &adherence, &speed, &cost, &errors, &revisions}
}

// The published vectors. Where a published composite differs, the formula decides.
func published() map[string]Vector {
	return map[string]Vector{
		"web":      vector(0.87, 0.92, 0.78, 0.85, 0.95, 0.88),
		"legal":    vector(0.91, 0.95, 0.65, 0.72, 0.88, 0.80),
		"security": vector(0.83, 0.89, 0.82, 0.79, 0.91, 0.85),
	}
}

func TestComposite(t *testing.T) {
	for _, c := range []struct {
		vector, weights string
		want            float64
	}{
		{"web", DefaultDomain, 0.8765}, {"legal", "legal", 0.8725}, {"legal", DefaultDomain, 0.8350},
		{"security", DefaultDomain, 0.8485}, {"security", "security", 0.8550}, {"web", "dashboard", 0.8600},
	} {
		w, of := WeightsOf(Presets(), c.weights)
		got, ok := w.Composite(published()[c.vector])
		if !ok || of != c.weights || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s by %s weights is %v %v, want %v", c.vector, c.weights, got, ok, c.want)
		}
	}
}

func TestPresets(t *testing.T) {
	want := map[string]Weights{
		"default": {0.25, 0.20, 0.15, 0.15, 0.15, 0.10}, "legal": {0.35, 0.25, 0.05, 0.10, 0.15, 0.10},
		"security": {0.30, 0.20, 0.10, 0.10, 0.20, 0.10}, "dashboard": {0.20, 0.15, 0.25, 0.20, 0.10, 0.10},
	}
	if len(Presets()) != len(want) {
		t.Errorf("presets are %v", Presets())
	}
	for name, w := range Presets() {
		if w != want[name] {
			t.Errorf("%s is %v, want %v", name, w, want[name])
		}
		if err := w.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	own := Weights{Quality: 1}
	if w, of := WeightsOf(Table(map[string]Weights{"legal": own}), "legal"); w != own || of != "legal" {
		t.Errorf("own weights do not take the place of a preset: %v of %s", w, of)
	}
	if w, of := WeightsOf(Table(nil), "tax"); w != want["default"] || of != "default" {
		t.Errorf("a domain without weights has %v of %s", w, of)
	}
}

func TestWeightsAddUp(t *testing.T) {
	for _, c := range []struct {
		change func(*Weights)
		want   string
	}{
		{func(w *Weights) {}, ""},
		{func(w *Weights) { w.Cost += 9e-10 }, ""},
		{func(w *Weights) { w.Cost += 2e-9 }, "the weights add up to 1.000000002, want 1; a dimension that is left out counts 0"},
		{func(w *Weights) { w.Cost = 0 }, "the weights add up to 0.85, want 1; a dimension that is left out counts 0"},
		{func(w *Weights) { w.Quality, w.Speed = -0.25, 0.65 }, "quality: is -0.25, want a number from 0 to 1"},
		{func(w *Weights) { w.ErrorRate = math.NaN() }, "error_rate: is NaN, want a number from 0 to 1"},
	} {
		w := Presets()[DefaultDomain]
		c.change(&w)
		got := ""
		if err := w.Validate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", w, got, c.want)
		}
	}
}

func TestAbsentDimensions(t *testing.T) {
	w := Presets()[DefaultDomain]
	v := Vector{}.With(Quality, 0.8).With(Speed, 0.4)
	if got, ok := w.Composite(v); !ok || math.Abs(got-(0.25*0.8+0.15*0.4)/0.40) > 1e-12 {
		t.Errorf("composite of two dimensions is %v %v", got, ok)
	}
	if got, ok := w.Composite(Vector{}); ok {
		t.Errorf("composite of nothing is %v", got)
	}
	if got, ok := (Weights{Cost: 1}).Composite(v); ok {
		t.Errorf("composite of what does not count is %v", got)
	}
	if got, ok := w.Distance(v, Vector{}.With(Speed, 0.9).With(Cost, 1)); !ok || math.Abs(got-0.5) > 1e-12 {
		t.Errorf("distance by speed alone is %v %v, want 0.5", got, ok)
	}
	if got, ok := w.Distance(v, Vector{}.With(Cost, 1)); ok {
		t.Errorf("distance of what has nothing in common is %v", got)
	}
}

func TestDistance(t *testing.T) {
	p := published()
	// √(0.25·0.04² + 0.20·0.03² + 0.15·0.13² + 0.15·0.13² + 0.15·0.07² + 0.10·0.08²)
	want := math.Sqrt(0.0004 + 0.00018 + 0.002535 + 0.002535 + 0.000735 + 0.00064)
	if got, ok := Presets()[DefaultDomain].Distance(p["web"], p["legal"]); !ok || math.Abs(got-want) > 1e-12 {
		t.Errorf("web is %v from legal, want %v", got, want)
	}
}

// TestWeightsProperties holds for all weights and vectors: the composite is
// between the least and the greatest value, and the distance is a metric that
// stays in [0, 1].
func TestWeightsProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWeights(rt)
		a, b, c := drawVector(rt, "a"), drawVector(rt, "b"), drawVector(rt, "c")
		if err := w.Validate(); err != nil {
			rt.Fatal(err)
		}
		if got, ok := w.Composite(a); ok {
			least, most := 1.0, 0.0
			for _, d := range Dimensions() {
				if x := a.Get(d); x != nil && w.Get(d) > 0 {
					least, most = min(least, *x), max(most, *x)
				}
			}
			if got < least-1e-9 || got > most+1e-9 {
				rt.Fatalf("composite %v is not between %v and %v", got, least, most)
			}
		}
		ab, any := w.Distance(a, b)
		ba, _ := w.Distance(b, a)
		if ab != ba || ab < 0 || ab > 1+1e-9 {
			rt.Fatalf("distance %v there, %v back", ab, ba)
		}
		if self, _ := w.Distance(a, a); self != 0 {
			rt.Fatalf("distance to itself is %v", self)
		}
		whole := func(v Vector) bool {
			for _, d := range Dimensions() {
				if v.Get(d) == nil {
					return false
				}
			}
			return true
		}
		if any && whole(a) && whole(b) && whole(c) {
			ac, _ := w.Distance(a, c)
			cb, _ := w.Distance(c, b)
			if ab > ac+cb+1e-9 {
				rt.Fatalf("%v is further than the way round, %v + %v", ab, ac, cb)
			}
		}
	})
}

func drawWeights(rt *rapid.T) Weights {
	parts := rapid.SliceOfN(rapid.IntRange(0, 20), 6, 6).Filter(func(p []int) bool {
		return p[0]+p[1]+p[2]+p[3]+p[4]+p[5] > 0
	}).Draw(rt, "weights")
	var sum float64
	for _, p := range parts {
		sum += float64(p)
	}
	at := func(i int) float64 { return float64(parts[i]) / sum }
	return Weights{at(0), at(1), at(2), at(3), at(4), at(5)}
}

func drawVector(rt *rapid.T, name string) (v Vector) {
	some := rapid.Bool().Draw(rt, name+" has gaps")
	for _, d := range Dimensions() {
		if !some || rapid.Bool().Draw(rt, name+" has "+string(d)) {
			v = v.With(d, rapid.Float64Range(0, 1).Draw(rt, name+" "+string(d)))
		}
	}
	return v
}

func TestWithLeavesTheOriginal(t *testing.T) {
	v := Vector{}.With(Quality, 0.5)
	u := v.With(Quality, 0.7)
	if *v.Quality != 0.5 || *u.Quality != 0.7 {
		t.Errorf("%v, %v", *v.Quality, *u.Quality)
	}
	o := Vector{}.With(Quality, 0.1).Over(v.With(Cost, 1))
	if *o.Quality != 0.1 || *o.Cost != 1 || *v.Quality != 0.5 {
		t.Errorf("%v over %v", o, v)
	}
}
