package config

import (
	"maps"
	"slices"

	"github.com/agentsched/agentsched/internal/fields"
)

// evaluation looks at whether the weights of each domain add up.
func (v *validator) evaluation() {
	c := v.config.Evaluation
	for _, domain := range slices.Sorted(maps.Keys(c.Weights)) {
		path := fields.Join("evaluation.weights", domain)
		if err := c.Weights[domain].Validate(); err != nil && !v.faulty(path) {
			v.Failf(path, "%v", err)
		}
	}
}
