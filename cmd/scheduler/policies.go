package main

import (
	"maps"
	"slices"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/policy"
)

// policies are the ones that this program knows beside those of package policy,
// by the name under which a configuration chooses them.
type policies map[string]func(policy.Config) (policy.Policy, error)

// ownPolicies is where a policy of your own is added:
//
//	return policies{"round-robin": roundrobin.New}
func ownPolicies() policies { return nil }

// make returns the policy that c names.
func (p policies) make(c policy.Config) (policy.Policy, error) {
	if own := p[c.Name]; own != nil {
		return own(c)
	}
	return policy.New(c)
}

// configOptions is what a configuration is read against.
func (m *Main) configOptions() config.Options {
	return config.Options{Adapters: m.adapterNames(), Policies: slices.Sorted(maps.Keys(m.policies)), Environ: m.environ}
}
