package simulate

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// dist is a distribution of values of zero or more: what a and b are depends on
// the kind. The zero value is the constant 0.
type dist struct {
	kind string
	a, b float64
}

// Kinds of distribution, as a file names them.
const (
	constant    = ""            // a
	uniform     = "uniform"     // a to b
	exponential = "exponential" // with mean a
	lognormal   = "lognormal"   // with median a; its logarithm has the standard deviation b
)

// draw returns a value. A constant takes nothing from r.
func (d dist) draw(r *rand.Rand) float64 {
	switch d.kind {
	case uniform:
		return d.a + (d.b-d.a)*r.Float64()
	case exponential:
		return d.a * r.ExpFloat64()
	case lognormal:
		return d.a * math.Exp(d.b*r.NormFloat64())
	default:
		return d.a
	}
}

// Bounds of a run time: a job of no length could arrive and end for ever at one
// moment, and one of 292 years does not fit a time.Duration.
const (
	minRunTime = time.Millisecond
	maxRunTime = 10 * 365 * 24 * time.Hour
)

// runTime is a distribution of durations; its dist is in seconds.
type runTime struct{ dist }

// draw returns a duration.
func (t runTime) draw(r *rand.Rand) time.Duration {
	seconds := min(max(t.dist.draw(r), minRunTime.Seconds()), maxRunTime.Seconds())
	return time.Duration(seconds * float64(time.Second))
}

// DecodeNode reads a duration or a distribution of durations.
func (t *runTime) DecodeNode(n *strictyaml.Node) {
	const want = "a duration such as 10m, or one of {uniform: {min: 5m, max: 15m}}, {exponential: 10m}, {lognormal: {median: 10m, sigma: 1}}"
	t.dist = decodeDist(n, want, n.IsText(), job.Duration.String, func(d job.Duration) float64 { return d.Std().Seconds() })
	if !n.IsMapping() && n.IsText() && t.a == 0 {
		n.Failf("is 0, so that the job would take no time; want %s", want)
	}
}

// amount is a distribution of numbers.
type amount struct{ dist }

// DecodeNode reads a number or a distribution of numbers.
func (a *amount) DecodeNode(n *strictyaml.Node) {
	const want = "a number such as 2000, or one of {uniform: {min: 1000, max: 3000}}, {exponential: 2000}, {lognormal: {median: 2000, sigma: 1}}"
	number := !n.IsText() && !n.IsList() && !n.IsNull()
	a.dist = decodeDist(n, want, number, formatNumber, func(v float64) float64 { return v })
}

type bounds[T any] struct {
	Min T `yaml:"min"`
	Max T `yaml:"max"`
}

type medianSigma[T any] struct {
	Median T       `yaml:"median"`
	Sigma  float64 `yaml:"sigma"`
}

// distFields are the forms of a distribution whose values a file writes as T.
type distFields[T any] struct {
	Uniform     *bounds[T]      `yaml:"uniform"`
	Exponential *T              `yaml:"exponential"`
	Lognormal   *medianSigma[T] `yaml:"lognormal"`
}

// maxSigma keeps a lognormal within sense: one job in a million is already
// e^24 times the median.
const maxSigma = 5

// JSONSchema implements fields.Custom.
func (runTime) JSONSchema() string {
	return distSchema(`{"type": "string", "pattern": ` + strconv.Quote(job.Duration(0).FieldTag().Get("text")) + `}`)
}

// JSONSchema implements fields.Custom.
func (amount) JSONSchema() string { return distSchema(`{"type": "number", "minimum": 0}`) }

// distSchema is the JSON schema of a value of that form, or of a distribution of such.
func distSchema(value string) string {
	return strings.ReplaceAll(`{"oneOf": [VALUE, {"type": "object", "additionalProperties": false, "minProperties": 1, "maxProperties": 1, "properties": {
		"uniform": {"description": "Evenly between two values.", "type": "object", "additionalProperties": false, "required": ["max"],
			"properties": {"min": VALUE, "max": VALUE}},
		"exponential": VALUE,
		"lognormal": {"description": "With this median; sigma is the standard deviation of the logarithm.",
			"type": "object", "additionalProperties": false, "required": ["median", "sigma"],
			"properties": {"median": VALUE, "sigma": {"type": "number", "exclusiveMinimum": 0, "maximum": 5}}}}}]}`, "VALUE", value)
}

// decodeDist reads a distribution; plain says that n has the form of a T, and
// want what would be right.
func decodeDist[T any](n *strictyaml.Node, want string, plain bool, show func(T) string, number func(T) float64) dist {
	if !n.IsMapping() {
		if !plain {
			n.Failf("found %s, want %s", n.Found(), want)
			return dist{}
		}
		var v T
		n.Decode(&v)
		return dist{constant, atLeastZero(n, number(v), show(v)), 0}
	}
	var f distFields[T]
	n.Decode(&f)
	given := 0
	var d dist
	if f.Uniform != nil {
		given++
		low, high := number(f.Uniform.Min), number(f.Uniform.Max)
		d = dist{uniform, atLeastZero(n.Nearest([]string{uniform, "min"}), low, show(f.Uniform.Min)), high}
		if at := n.Nearest([]string{uniform, "max"}); high <= low {
			at.Failf("%s is not above the least, %s; want a uniform with max above min", show(f.Uniform.Max), show(f.Uniform.Min))
		}
	}
	if f.Exponential != nil {
		given++
		mean := number(*f.Exponential)
		d = dist{exponential, aboveZero(n.Nearest([]string{exponential}), mean, show(*f.Exponential)), 0}
	}
	if f.Lognormal != nil {
		given++
		d = dist{lognormal, aboveZero(n.Nearest([]string{lognormal, "median"}), number(f.Lognormal.Median), show(f.Lognormal.Median)), f.Lognormal.Sigma}
		if at := n.Nearest([]string{lognormal, "sigma"}); d.b <= 0 || d.b > maxSigma {
			at.Failf("%s is no standard deviation of a logarithm, want a lognormal with sigma above 0 and at most %d", formatNumber(d.b), maxSigma)
		}
	}
	if given != 1 {
		n.Failf("has %d distributions, want %s", given, want)
	}
	return d
}

// formatNumber writes what people write without an exponent without one.
func formatNumber(v float64) string {
	if size := math.Abs(v); size >= 1e-6 && size < 1e12 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func atLeastZero(n *strictyaml.Node, v float64, shown string) float64 {
	if v < 0 {
		n.Failf("%s is negative, want 0 or more", shown)
	}
	return v
}

func aboveZero(n *strictyaml.Node, v float64, shown string) float64 {
	if v <= 0 {
		n.Failf("%s is not above 0, want a value that is", shown)
	}
	return v
}
