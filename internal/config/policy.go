package config

import (
	"slices"

	"github.com/agentsched/agentsched/policy"
)

// policy looks at who is next, and what is expected of jobs.
func (v *validator) policy() {
	c := v.config.Policy
	c.Tenants = nil // each is looked at where it stands
	if slices.Contains(v.policies, c.Name) {
		c.Name = policy.Default().Name // its constructor judges the rest
	}
	v.adopt(c.Validate(), func(field string) string { return "policy." + field })
}
