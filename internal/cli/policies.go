package cli

import (
	"maps"
	"slices"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// policies are the ones of Options: known beside those of package policy, by the name under which a configuration chooses them.
type policies map[string]func(policy.Config) (policy.Policy, error)

// make returns the policy that c names.
func (p policies) make(c policy.Config) (policy.Policy, error) {
	if own := p[c.Name]; own != nil {
		return own(c)
	}
	return policy.New(c)
}

// policyNames returns the names of all policies.
func (prog *program) policyNames() []string {
	names := policy.Names()
	for _, name := range slices.Sorted(maps.Keys(prog.policies)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// configOptions is what a configuration is read against.
func (prog *program) configOptions() config.Options {
	return config.Options{Adapters: prog.adapterNames(), NeedCommand: prog.adaptersThat(func(t job.WorkerTraits) bool { return t.NeedsCommand }), Policies: slices.Sorted(maps.Keys(prog.policies)), Environ: prog.con.environ}
}
