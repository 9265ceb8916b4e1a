package simulate

import (
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// aim returns what a policy, made anew, wants the tenants to have, best rank
// first: within a rank in proportion to the numbers, by tenant; who stands in a
// later rank is to have what the earlier leave. The policy is asked for its
// targets with a head of each tenant waiting, and then without those who have a
// target, until nobody is left. own is false if it has no targets at all: then
// there is one rank, of the tenants' weights.
func aim(p policy.Policy, w *Workload, c policy.Config) (ranks [][]float64, own bool) {
	left := map[job.Tenant]int{}
	for i := range w.tenants {
		name := w.tenants[i].Name
		left[name] = i
		p.Add(policy.Head{Lane: job.Lane{Tenant: name}, ID: idOf(int32(i)), RunnableAt: start(), Ask: policy.Demand{Slots: 1}})
	}
	for len(left) > 0 {
		rank := make([]float64, len(w.tenants))
		var in []job.Tenant
		for _, s := range p.Shares(start()) {
			if i, there := left[s.Tenant]; there && s.Target > 0 {
				rank[i] = s.Target
				in = append(in, s.Tenant)
			}
		}
		if len(in) == 0 {
			break
		}
		ranks = append(ranks, rank)
		for _, name := range in {
			delete(left, name)
			p.Remove(job.Lane{Tenant: name})
		}
	}
	if len(ranks) > 0 {
		return ranks, true
	}
	weights := make([]float64, len(w.tenants))
	for i := range weights {
		if weights[i] = c.Tenants[w.tenants[i].Name].Weight; weights[i] == 0 {
			weights[i] = 1
		}
	}
	return [][]float64{weights}, false
}
