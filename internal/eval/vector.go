package eval

import (
	"fmt"
	"math"

	"github.com/agentsched/agentsched/job"
)

// Dimension is one of the six ways to look at a piece of work.
type Dimension string

// The dimensions. 1 is best in each: an error rate of 1 is no error at all.
const (
	Quality       Dimension = "quality"        // how good it is, in somebody's judgement
	Adherence     Dimension = "adherence"      // how far it is what was asked for
	Speed         Dimension = "speed"          // time against the SLA
	Cost          Dimension = "cost"           // cost against what it was to cost
	ErrorRate     Dimension = "error_rate"     // part of the attempts that did not fail
	RevisionCount Dimension = "revision_count" // how seldom it had to be done again
)

// Dimensions lists them in the order of a vector.
func Dimensions() []Dimension {
	return []Dimension{Quality, Adherence, Speed, Cost, ErrorRate, RevisionCount}
}

// Vector is a judgement. Each value is in [0, 1], or nil if nobody said anything.
type Vector struct {
	Quality       *float64 `json:"quality,omitempty"`
	Adherence     *float64 `json:"adherence,omitempty"`
	Speed         *float64 `json:"speed,omitempty"`
	Cost          *float64 `json:"cost,omitempty"`
	ErrorRate     *float64 `json:"error_rate,omitempty"`
	RevisionCount *float64 `json:"revision_count,omitempty"`
}

// Get returns the value of a dimension, nil if it has none. The pointer is not
// to be written through.
func (v Vector) Get(d Dimension) *float64 { return *v.field(d) }

// With returns v with a value for a dimension.
func (v Vector) With(d Dimension, x float64) Vector {
	*v.field(d) = &x
	return v
}

func (v *Vector) field(d Dimension) **float64 {
	switch d {
	case Quality:
		return &v.Quality
	case Adherence:
		return &v.Adherence
	case Speed:
		return &v.Speed
	case Cost:
		return &v.Cost
	case ErrorRate:
		return &v.ErrorRate
	case RevisionCount:
		return &v.RevisionCount
	}
	panic(fmt.Sprintf("eval: no dimension %q", d)) // not from outside: what is read has named fields
}

// Over returns v where it has a value and else under.
func (v Vector) Over(under Vector) Vector {
	for _, d := range Dimensions() {
		if x := v.Get(d); x != nil {
			*under.field(d) = x
		}
	}
	return under
}

// Empty reports whether no dimension has a value.
func (v Vector) Empty() bool { return v == Vector{} }

// Validate reports the first value that is not in [0, 1], as a *job.FieldError.
func (v Vector) Validate() error {
	for _, d := range Dimensions() {
		if x := v.Get(d); x != nil && !unit(*x) {
			return &job.FieldError{Field: string(d), Message: fmt.Sprintf("is %v, want a number from 0 to 1, where 1 is best", *x)}
		}
	}
	return nil
}

// unit is false for what is not a number, too.
func unit(x float64) bool { return x >= 0 && x <= 1 }

func clamp(x float64) float64 { return math.Min(1, math.Max(0, x)) }
