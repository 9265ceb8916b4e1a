package config

import (
	"maps"
	"slices"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// evaluation looks at how work is judged.
func (v *validator) evaluation() {
	c := v.config.Evaluation
	for _, domain := range slices.Sorted(maps.Keys(c.Weights)) {
		path := strictyaml.Entry("evaluation.weights", domain)
		if !domainName.MatchString(domain) {
			v.Failf(path, "%q is not a name of a domain, want 1 to 128 of a-z A-Z 0-9 and, not first, - _ : / @", domain)
			continue
		}
		switch err := c.Weights[domain].Validate().(type) {
		case nil:
		case *job.FieldError:
			v.Failf(path+"."+err.Field, "%s", err.Message)
		default:
			v.Failf(path, "%v", err)
		}
	}
	if !(c.Alpha > 0 && c.Alpha <= 1) {
		v.Failf("evaluation.alpha", "is %v, want a number above 0 and up to 1", c.Alpha)
	}
	for _, f := range []struct {
		name  string
		value float64
		means string
	}{{"drift", c.Drift, "a distance from 0, for never, to 1"}, {"explore", c.Explore, "a part from 0 to 1"}} {
		if !(f.value >= 0 && f.value <= 1) {
			v.Failf("evaluation."+f.name, "is %v, want %s", f.value, f.means)
		}
	}
}
