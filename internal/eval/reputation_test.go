package eval

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// scored is an evaluation of that composite and α.
func scored(s, alpha float64) *Evaluation {
	return &Evaluation{Composite: s, Alpha: alpha, Weights: Presets()[DefaultDomain], Vector: vector(s, s, s, s, s, s)}
}

func TestReputation(t *testing.T) {
	var r Reputation
	for i, c := range []struct{ s, want float64 }{
		{0.8, 0.8}, {0.9, 0.3*0.9 + 0.7*0.8}, {0.5, 0.3*0.5 + 0.7*0.83},
	} {
		if r = r.Next(scored(c.s, DefaultAlpha)); math.Abs(r.R-c.want) > 1e-12 || r.N != i+1 || r.Last != c.s {
			t.Errorf("after %d: %+v, want %v", i+1, r, c.want)
		}
	}
}

// TestReputationConverges holds R_T between the least and the greatest score, and
// to the bound |R_T − s| ≤ (1−α)^{T−1}·|s₁ − s| where all scores after the first are s.
func TestReputationConverges(t *testing.T) {
	const rounding = 1e-12
	rapid.Check(t, func(rt *rapid.T) {
		alpha := rapid.OneOf(rapid.Just(DefaultAlpha), rapid.Float64Range(0.001, 1)).Draw(rt, "alpha")
		score := rapid.Float64Range(0, 1)
		scores := rapid.SliceOfN(score, 1, 60).Draw(rt, "scores")
		var r Reputation
		least, most := 1.0, 0.0
		for _, s := range scores {
			r = r.Next(scored(s, alpha))
			least, most = min(least, s), max(most, s)
			if r.R < least || r.R > most {
				rt.Fatalf("R is %v, not between %v and %v", r.R, least, most)
			}
			for _, d := range Dimensions() {
				if x := *r.Average.Get(d); x < least || x > most {
					rt.Fatalf("average of %s is %v, not between %v and %v", d, x, least, most)
				}
			}
		}

		first, s := scores[0], score.Draw(rt, "constant")
		r = Reputation{}.Next(scored(first, alpha))
		for T := 2; T <= 60; T++ {
			r = r.Next(scored(s, alpha))
			bound := math.Pow(1-alpha, float64(T-1)) * math.Abs(first-s)
			if got := math.Abs(r.R - s); got > bound+rounding {
				rt.Fatalf("after %d evaluations R is %v from %v, beyond the bound %v", T, got, s, bound)
			}
			// It is no looser than what is true: there is equality but for rounding.
			if got := math.Abs(r.R - s); got < bound-1e-9 {
				rt.Fatalf("after %d evaluations R is %v from %v, the bound is %v", T, got, s, bound)
			}
		}
	})
}

func TestDrift(t *testing.T) {
	r := Reputation{Subject: Subject{Worker, "claude"}, Domain: DefaultDomain}
	told := func(s, threshold float64) (Alert, bool) {
		r = r.Next(scored(s, DefaultAlpha))
		return r.Drifted(threshold)
	}
	for i := range driftAfter {
		if a, far := told([]float64{0.9, 0.1, 0.9}[i], 0.1); far {
			t.Errorf("evaluation %d drifts already: %+v", i+1, a)
		}
	}
	for range 30 {
		told(0.9, 1)
	}
	if a, far := told(0.65, 0.3); far {
		t.Errorf("0.25 from the average is told of beyond 0.3: %+v", a)
	}
	for range 30 {
		told(0.9, 1)
	}
	a, far := told(0.5, 0.3)
	if !far || math.Abs(a.Drift-0.4) > 1e-3 || a.Threshold != 0.3 || a.Last != 0.5 || a.Subject.Name != "claude" || a.R != r.R {
		t.Errorf("0.4 from the average: %+v %v", a, far)
	}
	if _, far := told(0.5, 0); far {
		t.Error("a threshold of 0 is told of")
	}
	// Only what both have is compared.
	e := scored(0.5, DefaultAlpha)
	e.Vector = Vector{}.With(Quality, *r.Average.Quality)
	if r = r.Next(e); r.Drift != 0 {
		t.Errorf("the same quality drifts by %v", r.Drift)
	}
}
