//go:build linux

package faults

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/internal/faults/act"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// What TestFleetShares plays: tenants by their weights, and how many jobs there are in all. At any time a tenant is up to
// half of the slots, some five jobs, ahead or behind, since jobs are given out several at once: shares are looked at when so
// many have ended that this is less than a per cent.
const (
	shareJobs     = 780
	shareMeasured = 600
	shareTokens   = 100 // of each job
	shareOff      = 0.02
)

var shareWeights = map[string]int{"red": 5, "blue": 3, "green": 2}

// TestFleetShares: of the tokens that the first jobs to end have used, each tenant has had what its weight says, to
// 2 % of all, while nodes and the leader die, freeze and are cut off. No tenant is ever without jobs that wait.
func TestFleetShares(t *testing.T) {
	if !testrun.Soaking() && os.Getenv(testrun.SeedVariable) == "" {
		t.Skip("it takes a minute of both processors")
	}
	needNetworks(t)
	t.Parallel()
	seed, total := testrun.Seed(t), &tally{what: "fleets of which shares were measured"}
	total.first = seed
	t.Cleanup(func() { t.Log(total) })
	playFleetPlan(t, newSharesPlan(seed), total, (*fleet).checkShares)
}

// newSharesPlan makes the plan of a seed.
func newSharesPlan(seed uint64) *fleetPlan {
	r := rand.New(rand.NewPCG(seed, 15))
	p := &fleetPlan{plan: &plan{Seed: seed, Cores: 1, PerKind: map[string]int{}, Level: sandbox.None, Lapse: true, NoCgroup: !cgroups}, Rate: 1, Weights: shareWeights}
	for range fleetNodes {
		p.Slots = append(p.Slots, 1)
	}
	for tenant, n := range shareWeights {
		for i := range shareJobs * n / 10 {
			p.Jobs = append(p.Jobs, jobPlan{
				Name: fmt.Sprintf("%s-%d", tenant, i), Tenant: tenant, Kind: kindA, MaxAttempts: 1000, Fate: heals,
				Acts: []act.Act{{Do: act.Succeed, Millis: 50 + r.IntN(100), Tokens: shareTokens}},
			})
		}
	}
	slices.SortFunc(p.Jobs, func(a, b jobPlan) int { return cmp.Compare(a.Name, b.Name) })
	p.Split = len(p.Jobs)
	for i, do := range []faultKind{killNode, cutNode, killLeader, freezeNode, cutCommit, stallNode} {
		f := newFleetFault(r, 1)
		for f.Do != do {
			f = newFleetFault(r, 1)
		}
		f.After = 500 + 1500*i
		p.Faults = append(p.Faults, f)
	}
	return p
}

// checkShares looks at the jobs in the order in which they ended.
func (f *fleet) checkShares(ctx context.Context) (wrong []string) {
	store, err := sqlite.OpenReadOnly(ctx, filepath.Join(f.state, "queue.db"))
	if err != nil {
		return []string{err.Error()}
	}
	defer store.Close()
	entries, _, err := store.List(ctx, queue.Filter{Limit: shareJobs})
	if err != nil {
		return []string{err.Error()}
	}
	entries = slices.DeleteFunc(entries, func(e queue.Entry) bool { return e.State != job.Completed || e.CompletedAt == nil })
	slices.SortFunc(entries, func(a, b queue.Entry) int { return a.CompletedAt.Compare(*b.CompletedAt) })
	if len(entries) < shareJobs {
		return []string{fmt.Sprintf("%d jobs of %d are completed", len(entries), shareJobs)}
	}
	used, all := map[string]int64{}, int64(0)
	for _, e := range entries[:shareMeasured] {
		tokens := e.Spent.InputTokens + e.Spent.OutputTokens
		used[string(e.Spec.Tenant)] += tokens
		all += tokens
	}
	for _, tenant := range slices.Sorted(maps.Keys(shareWeights)) {
		want, have := float64(shareWeights[tenant])/10, float64(used[tenant])/float64(all)
		f.tell("%s has had %.1f %% of %d tokens, and was to have %.0f %%", tenant, 100*have, all, 100*want)
		if math.Abs(have-want) > shareOff {
			wrong = append(wrong, fmt.Sprintf("%s has had %.1f %% of the first %d jobs' tokens, want %.0f %%", tenant, 100*have, shareMeasured, 100*want))
		}
		if slices.IndexFunc(entries[shareMeasured:], func(e queue.Entry) bool { return string(e.Spec.Tenant) == tenant }) < 0 {
			wrong = append(wrong, tenant+" had no more jobs when its share was measured")
		}
	}
	return wrong
}
