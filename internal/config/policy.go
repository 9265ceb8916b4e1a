package config

import (
	"maps"
	"slices"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/policy"
)

// policy looks at who is next, and what is expected of jobs.
func (v *validator) policy() {
	c := v.config.Policy
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		path := strictyaml.Entry("policy.tenants", string(name))
		v.tenant(path, name)
		v.adopt(c.Tenants[name].Validate(), func(field string) string { return path + "." + field })
	}
	c.Tenants = nil
	if slices.Contains(v.policies, c.Name) {
		c.Name = policy.Default().Name // its constructor judges the rest
	}
	v.adopt(c.Validate(), func(field string) string { return "policy." + field })
	if v.config.Expect.Tokens < 0 {
		v.Failf("expect.tokens", "%d is negative, want a number of tokens, or 0 if it is not known", v.config.Expect.Tokens)
	}
	if !(v.config.Expect.CostUSD >= 0) {
		v.Failf("expect.cost_usd", "%v is not allowed, want US dollars, or 0 if it is not known", v.config.Expect.CostUSD)
	}
}
