package eval

import "time"

// Reputation is how good a subject was lately, in one domain:
//
//	R₁ = s₁,  R_T = α·s_T + (1−α)·R_{T−1}
//
// over the composites s of its evaluations, in the order in which they were
// counted. It stays between the least and the greatest of them, and a subject
// that changes to a constant s comes nearer by 1−α with each evaluation:
// |R_T − s| ≤ (1−α)^{T−1}·|R₁ − s|.
type Reputation struct {
	Subject Subject `json:"subject"`
	Domain  string  `json:"domain"`

	R float64 `json:"r"` // in [0, 1]
	N int     `json:"n"` // evaluations that are in it; 0: nothing is known, and R means nothing
	// Last is the composite of the latest, of LastJob at LastAt.
	Last    float64   `json:"last"`
	LastJob string    `json:"last_job,omitempty"`
	LastAt  time.Time `json:"last_at,omitzero"`
	// Average is the same average of each dimension by itself, over the
	// evaluations that have it. Drift is how far the latest vector was from what
	// it was before (Weights.Distance); 0 for the first.
	Average Vector  `json:"average"`
	Drift   float64 `json:"drift"`
}

// Next returns the reputation after one more evaluation, with that one's α.
func (r Reputation) Next(e *Evaluation) Reputation {
	s := e.Composite
	if r.N == 0 {
		r.R, r.Drift = s, 0
	} else {
		r.R = average(e.Alpha, s, r.R)
		r.Drift, _ = e.Weights.Distance(e.Vector, r.Average)
	}
	for _, d := range Dimensions() {
		x, was := e.Vector.Get(d), r.Average.Get(d)
		switch {
		case x == nil:
		case was == nil:
			r.Average = r.Average.With(d, *x)
		default:
			r.Average = r.Average.With(d, average(e.Alpha, *x, *was))
		}
	}
	r.N++
	r.Last, r.LastJob, r.LastAt = s, string(e.Name), e.At
	return r
}

// average is α·x + (1−α)·was, kept between the two where rounding would leave that.
func average(alpha, x, was float64) float64 {
	y := alpha*x + (1-alpha)*was
	return min(max(y, min(x, was)), max(x, was))
}

// driftAfter is how many evaluations there must have been before one can drift
// from them.
const driftAfter = 3

// Alert says that a subject's latest work was unlike what it did before.
type Alert struct {
	Subject   Subject `json:"subject"`
	Domain    string  `json:"domain"`
	Job       string  `json:"job"`
	Drift     float64 `json:"drift"` // beyond Threshold
	Threshold float64 `json:"threshold"`
	Last      float64 `json:"last"` // composite
	R         float64 `json:"r"`    // reputation, the latest included
}

// Drifted reports whether the latest of n evaluations was further from the average
// before it than the threshold; one of 0 is never passed.
func Drifted(drift float64, n int, threshold float64) bool {
	return threshold > 0 && n > driftAfter && drift > threshold
}

// Drifted returns an alert if the latest evaluation was further than that from
// the average before it; a threshold of 0 is never passed.
func (r *Reputation) Drifted(threshold float64) (Alert, bool) {
	if !Drifted(r.Drift, r.N, threshold) {
		return Alert{}, false
	}
	return Alert{Subject: r.Subject, Domain: r.Domain, Job: r.LastJob, Drift: r.Drift, Threshold: threshold, Last: r.Last, R: r.R}, true
}

// Settings say how work is judged.
type Settings struct {
	// How much each dimension counts, by the domain that a job's evaluation names. A domain that is
	// given has the place of the built-in one as a whole; `default` is of all domains without weights.
	Weights map[string]Weights `json:"weights,omitempty" keys:"match:\"^[A-Za-z0-9][A-Za-z0-9_:/@-]{0,127}$\" is:\"a name of a domain\" want:\"1 to 128 of a-z A-Z 0-9 and, not first, - _ : / @\"" otherwise:"default, legal, security and dashboard are built in"`
	// How much the latest evaluation counts in a reputation, above 0 and up to 1.
	Alpha float64 `json:"alpha" above:"0" max:"1"`
	// The distance from its own average beyond which a subject's latest work is told of; `0` never.
	Drift float64 `json:"drift" min:"0" max:"1"`
	// In which part of the choices of `worker: best` the worker is taken that is known least.
	Explore float64 `json:"explore" min:"0" max:"1"`
}

// Defaults of Settings.
const (
	DefaultAlpha   = 0.3
	DefaultDrift   = 0.3
	DefaultExplore = 0.1
)

// DefaultSettings returns the settings where none are given.
func DefaultSettings() Settings {
	return Settings{Alpha: DefaultAlpha, Drift: DefaultDrift, Explore: DefaultExplore}
}
