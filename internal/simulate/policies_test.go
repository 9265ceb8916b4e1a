package simulate_test

import (
	"math"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/simulate"
	"github.com/agentsched/agentsched/policy"
)

// Tenants that always have work, with jobs of different sizes, over 10^5
// dispatches: each policy that aims at shares reaches them within 1 %.
func TestPoliciesReachTheirTargets(t *testing.T) {
	const workload = `
slots: 10
jobs: 100000
seed: 5
policy: {window: 24h, tiers: weighted}
tenants:
  - {name: a, weight: 3, arrivals: [{waiting: 20}], size: {run_time: {exponential: 10m}, tokens: {exponential: 1000}, cost_usd: 0.1}}
  - {name: b, weight: 2, contracted: true, arrivals: [{waiting: 20}], size: {run_time: 5m, tokens: {uniform: {min: 500, max: 1500}}, cost_usd: {exponential: 0.2}}}
  - {name: c, arrivals: [{waiting: 20}], size: {run_time: 20m, tokens: 3000, cost_usd: 0.05}, declared: 0.3}
`
	w := decode(t, workload)
	for name, want := range map[string][]float64{
		policy.NameCredit:  {3. / 12, 8. / 12, 1. / 12}, // w is 4 for b
		policy.NameDeficit: {3. / 6, 2. / 6, 1. / 6},
	} {
		r, err := w.Run(name, policy.New)
		if err != nil {
			t.Fatal(err)
		}
		if r.Done < 100000 || !r.OwnTargets || starved(r) {
			t.Errorf("%s: %+v", name, r)
		}
		for i, n := range r.Tenants {
			if math.Abs(n.Target-want[i]) > 1e-6 || math.Abs(n.Error()) > 0.01 {
				t.Errorf("%s: %s has %.4f of a target of %.4f, want a target of %.4f", name, n.Tenant, n.Actual, n.Target, want[i])
			}
		}
	}
}

// The example of the paper (Ghodsi et al., NSDI 2011, section 4.1) with tokens
// and cost for memory and CPUs, each job a day long and used up within it.
func TestDominantResourceFairnessOfThePaper(t *testing.T) {
	w := decode(t, `
slots: 1000
duration: 24h
policy: {name: drf, window: 24h, capacity: {cost_usd: 9, tokens: 18}, budget: {cost_usd: 9, tokens: 18}}
tenants:
  - {name: a, arrivals: [{waiting: 1}], size: {run_time: 24h, cost_usd: 1, tokens: 4}}
  - {name: b, arrivals: [{waiting: 1}], size: {run_time: 24h, cost_usd: 3, tokens: 1}}
`)
	r, err := w.Run("", policy.New)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.Tenants[0], r.Tenants[1]; a.Began != 3 || b.Began != 2 || math.Abs(a.Actual-0.5) > 1e-9 {
		t.Errorf("began %d and %d, want 3 and 2: %+v", a.Began, b.Began, r)
	}
}

// With strict tiers the marketplace is to have what the contracted leave; with
// none left it starves, and that is said.
func TestStrictTiersStarve(t *testing.T) {
	const workload = `
slots: 2
duration: 50h
policy: {name: credit, tiers: TIERS}
tenants:
  - {name: c, contracted: true, arrivals: [{waiting: 4, until: 25h}], size: {run_time: 10m}}
  - {name: m, weight: 2, arrivals: [{waiting: 4}], size: {run_time: 10m}}
  - {name: n, arrivals: [{waiting: 4}], size: {run_time: 10m}}
`
	run := func(tiers string) *simulate.Result {
		r, err := decode(t, strings.Replace(workload, "TIERS", tiers, 1)).Run("", policy.New)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	strict := run("strict")
	for i, want := range []float64{1. / 2, 2. / 6, 1. / 6} {
		if n := strict.Tenants[i]; math.Abs(n.Target-want) > 0.005 || math.Abs(n.Error()) > 0.01 || n.Starved != (i > 0) {
			t.Errorf("strict: want %.3f: %+v", want, n)
		}
	}
	if r := run("weighted"); starved(r) {
		t.Errorf("weighted: %+v", r.Tenants)
	}
}

func starved(r *simulate.Result) bool {
	for _, n := range r.Tenants {
		if n.Starved {
			return true
		}
	}
	return false
}
