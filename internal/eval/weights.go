package eval

import (
	"fmt"
	"maps"
	"math"

	"github.com/agentsched/agentsched/internal/fields"
)

// Weights say how much each dimension counts. They add up to 1.
type Weights struct {
	// How good the work is. The six must add up to 1.
	Quality float64 `json:"quality" min:"0" max:"1"`
	// How far it is what was asked for.
	Adherence float64 `json:"adherence" min:"0" max:"1"`
	// Time against the SLA.
	Speed float64 `json:"speed" min:"0" max:"1"`
	// Cost against what was expected.
	Cost float64 `json:"cost" min:"0" max:"1"`
	// Attempts that did not fail.
	ErrorRate float64 `json:"error_rate" min:"0" max:"1"`
	// How seldom it was done again.
	RevisionCount float64 `json:"revision_count" min:"0" max:"1"`
}

// DefaultDomain is the domain of work that names none, and the name of the
// weights of domains that have none of their own.
const DefaultDomain = "default"

// tolerance is how far weights may be from adding up to 1.
const tolerance = 1e-9

// Presets returns the weights that exist without a configuration, by domain.
func Presets() map[string]Weights {
	return map[string]Weights{
		DefaultDomain: {0.25, 0.20, 0.15, 0.15, 0.15, 0.10},
		"legal":       {0.35, 0.25, 0.05, 0.10, 0.15, 0.10},
		"security":    {0.30, 0.20, 0.10, 0.10, 0.20, 0.10},
		"dashboard":   {0.20, 0.15, 0.25, 0.20, 0.10, 0.10},
	}
}

// Table returns the presets with those of own in their place.
func Table(own map[string]Weights) map[string]Weights {
	all := Presets()
	maps.Copy(all, own)
	return all
}

// WeightsOf returns the weights of a domain, and whose they are: the domain's
// own or, if it has none, the default's.
func WeightsOf(table map[string]Weights, domain string) (Weights, string) {
	if w, own := table[domain]; own {
		return w, domain
	}
	if w, own := table[DefaultDomain]; own {
		return w, DefaultDomain
	}
	return Presets()[DefaultDomain], DefaultDomain
}

// Get returns the weight of a dimension.
func (w Weights) Get(d Dimension) float64 {
	switch d {
	case Quality:
		return w.Quality
	case Adherence:
		return w.Adherence
	case Speed:
		return w.Speed
	case Cost:
		return w.Cost
	case ErrorRate:
		return w.ErrorRate
	case RevisionCount:
		return w.RevisionCount
	}
	panic(fmt.Sprintf("eval: no dimension %q", d))
}

// Validate reports the weights that are not in [0, 1], each as a *job.FieldError,
// or that they do not add up to 1, within 1e-9.
func (w Weights) Validate() error {
	if err := fields.Validate(w); err != nil {
		return err
	}
	var sum float64
	for _, d := range Dimensions() {
		sum += w.Get(d)
	}
	if math.Abs(sum-1) > tolerance {
		return fmt.Errorf("the weights add up to %.10g, want 1; a dimension that is left out counts 0", sum)
	}
	return nil
}

// Composite returns Σ wᵢvᵢ. Where dimensions of v are absent, the weights of the
// others are scaled to a sum of 1. False: no dimension that counts has a value.
func (w Weights) Composite(v Vector) (float64, bool) {
	var sum, present float64
	all := true
	for _, d := range Dimensions() {
		x := v.Get(d)
		if x == nil {
			all = false
			continue
		}
		sum += w.Get(d) * *x
		present += w.Get(d)
	}
	switch {
	case all:
		return clamp(sum), true
	case present == 0:
		return 0, false
	}
	return clamp(sum / present), true
}

// Distance returns √Σ wᵢ(vᵢ−v′ᵢ)², which is in [0, 1], over the dimensions that
// both have, with the weights of these scaled to a sum of 1. False: there is none
// that counts.
func (w Weights) Distance(a, b Vector) (float64, bool) {
	var sum, present float64
	all := true
	for _, d := range Dimensions() {
		x, y := a.Get(d), b.Get(d)
		if x == nil || y == nil {
			all = false
			continue
		}
		sum += w.Get(d) * (*x - *y) * (*x - *y)
		present += w.Get(d)
	}
	switch {
	case all:
		return math.Sqrt(sum), true
	case present == 0:
		return 0, false
	}
	return math.Sqrt(sum / present), true
}
