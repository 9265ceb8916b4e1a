package policy

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
)

// measured is a policy that is told reputations.
type measured interface {
	Policy
	Reputed
}

func newMeasured(t *testing.T, c Config) measured {
	t.Helper()
	p, ok := mustNew(t, c).(measured)
	if !ok {
		t.Fatalf("%s is not told of reputations", c.Name)
	}
	return p
}

// TestEffectiveWeight has the shares follow w(p)·(1 + βR), of what was measured
// instead of what is configured, in the contracted tier (w = 4) and the other.
func TestEffectiveWeight(t *testing.T) {
	const beta = 0.5
	settings := map[job.Tenant]Tenant{"good": {Reputation: 0.1}, "fair": {Reputation: 1}, "unknown": {}, "contracted": {Contracted: true}}
	told := map[job.Tenant]float64{"good": 0.9, "fair": 0.4, "contracted": 0.7}
	weight := func(name job.Tenant) float64 {
		w := 1.0
		if settings[name].Contracted {
			w = 4
		}
		return w * (1 + beta*told[name])
	}
	var sum float64
	var clients []client
	for name, s := range settings {
		sum += weight(name)
		clients = append(clients, client{name: name, settings: s, ask: Demand{CostUSD: 0.5}})
	}
	for i := range clients {
		clients[i].want = weight(clients[i].name) / sum
	}
	out, _, p := simulateWith(t, Config{Name: NameCredit, Tiers: TiersWeighted, Beta: beta}, 8, dispatches, clients, func(p Policy, _ int, _ job.Tenant) {
		for name, r := range told {
			p.(Reputed).SetReputation(name, r)
		}
	})
	converged(t, clients, out, costOf)
	served(t, out, time.Hour)
	for _, s := range p.Shares(epoch) {
		if want := weight(s.Tenant) / sum; math.Abs(s.Target-want) > 1e-12 {
			t.Errorf("the target of %s is %v, want %v", s.Tenant, s.Target, want)
		}
	}
}

// TestReputationsThatMove: whatever becomes of reputations while jobs are in
// flight, nobody starves, and in the end each has its part by the mean of its weights.
func TestReputationsThatMove(t *testing.T) {
	clients := []client{
		{name: "falls-and-rises", ask: Demand{CostUSD: 1}, want: 1.5},
		{name: "rises-and-falls", ask: Demand{CostUSD: 1}, want: 1.5},
		{name: "none", ask: Demand{CostUSD: 1}, want: 1},
		{name: "worst", ask: Demand{CostUSD: 1}, want: 1},
	}
	clients = weighted(clients, 0)
	out, _, _ := simulateWith(t, Config{Name: NameCredit, Tiers: TiersWeighted, Beta: 1}, 8, dispatches, clients, func(p Policy, n int, _ job.Tenant) {
		r := math.Abs(float64(n%200)/100 - 1)
		p.(Reputed).SetReputation("falls-and-rises", r)
		p.(Reputed).SetReputation("rises-and-falls", 1-r)
		p.(Reputed).SetReputation("worst", 0)
	})
	served(t, out, time.Hour)
	for _, c := range clients {
		var all float64
		for _, o := range out {
			all += o.used.CostUSD
		}
		if got := out[c.name].used.CostUSD / all; math.Abs(got-c.want) > 0.03 {
			t.Errorf("%s has had %.3f, want about %.3f", c.name, got, c.want)
		}
	}
}

// TestFallingReputationGainsNothing: a tenant whose reputation is high whenever
// its jobs start and low when they end has no more than one whose never was.
func TestFallingReputationGainsNothing(t *testing.T) {
	p := newMeasured(t, Config{Name: NameCredit, Tiers: TiersWeighted, Beta: 1})
	ask, used := Demand{CostUSD: 1}, Demand{CostUSD: 0.1} // much is given back at the end
	for _, name := range []job.Tenant{"sly", "steady"} {
		p.Add(Head{Lane: job.Lane{Tenant: name}, ID: job.ID(name), RunnableAt: epoch, Ask: ask})
	}
	got := turns(1000, func() job.Tenant {
		p.SetReputation("sly", 1)
		h, _ := p.Next(epoch)
		p.Start(h.Lane.Tenant, ask, epoch)
		p.Add(h)
		p.SetReputation("sly", 0)
		p.End(h.Lane.Tenant, ask, used, true, epoch)
		return h.Lane.Tenant
	})
	if got["sly"] < 490 || got["sly"] > 510 {
		t.Errorf("of 1000 ran %v, want 500 each", got)
	}
}

// TestReputationOutlivesItsTenant: one that is forgotten for want of work comes
// back with what was measured, and so it does after its settings were changed.
func TestReputationOutlivesItsTenant(t *testing.T) {
	p := newMeasured(t, Config{Name: NameCredit, Tiers: TiersWeighted, Beta: 1})
	p.SetReputation("a", 1)
	p.SetReputation("b", math.NaN())
	p.SetReputation("c", 7)
	backlog(p, "a", "b", "c")
	target := func() map[job.Tenant]float64 {
		got := map[job.Tenant]float64{}
		for _, s := range p.Shares(epoch) {
			got[s.Tenant] = s.Target
		}
		return got
	}
	if got := target(); got["a"] != 0.5 || got["b"] != 0.25 || got["c"] != 0.25 {
		t.Errorf("targets are %v, want a half and two quarters", got)
	}
	p.SetTenants(map[job.Tenant]Tenant{"a": {Reputation: 0}, "b": {Reputation: 0.5}, "c": {Credits: 2000}})
	if got := target(); got["a"] != 0.4 || got["b"] != 0.2 || got["c"] != 0.4 {
		t.Errorf("targets are %v, want 2, 1 and 2 parts", got)
	}
}

func TestBest(t *testing.T) {
	type known struct {
		r float64
		n int
	}
	choices := []job.Choice{{Worker: "a"}, {Worker: "b"}, {Worker: "b", Model: "big"}, {Worker: "c"}}
	for name, c := range map[string]struct {
		known map[job.Choice]known
		draw  float64
		want  int
		rank  []int
	}{
		"the highest":                  {map[job.Choice]known{choices[0]: {0.4, 9}, choices[1]: {0.9, 3}, choices[2]: {0.8, 50}, choices[3]: {0.1, 7}}, 0.5, 1, []int{1, 2, 0, 3}},
		"the first of equals":          {map[job.Choice]known{choices[1]: {0.9, 3}, choices[2]: {0.9, 50}}, 0.5, 1, []int{1, 2, 0, 3}},
		"a bad one before a newcomer":  {map[job.Choice]known{choices[3]: {0, 7}}, 0.1, 3, []int{3, 0, 1, 2}},
		"a newcomer's chance":          {map[job.Choice]known{choices[0]: {0.4, 9}, choices[1]: {0.9, 3}, choices[3]: {0.1, 7}}, 0.0999, 2, []int{2, 1, 0, 3}},
		"explores what is known least": {map[job.Choice]known{choices[0]: {0.4, 9}, choices[1]: {0.9, 3}, choices[2]: {0.8, 50}, choices[3]: {0.1, 2}}, 0, 3, []int{3, 1, 2, 0}},
		"nobody is known":              {nil, 0.5, 0, []int{0, 1, 2, 3}},
	} {
		rep := func(x job.Choice) (float64, int) { return c.known[x].r, c.known[x].n }
		if got := Best(choices, rep, 0.1, c.draw); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if got := Rank(choices, rep, 0.1, c.draw); !slices.Equal(got, c.rank) {
			t.Errorf("%s: in the order %v, want %v", name, got, c.rank)
		}
	}
	if got := Best(nil, nil, 0.1, 0); got != -1 {
		t.Errorf("of none it is %d", got)
	}
}

// TestBestLearns plays workers of different quality: the good one gets the most,
// and one that comes later is found out.
func TestBestLearns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const alpha, explore, jobs = 0.3, 0.1, 1000
		choices := []job.Choice{{Worker: "a"}, {Worker: "b"}, {Worker: "new"}}
		order := rapid.Permutation([]float64{0.3, 0.6, 0.9}).Draw(rt, "quality")
		r, n := make([]float64, 3), []int{5, 5, 0}
		copy(r, order[:2])
		best := 0
		for i, q := range order {
			if q == 0.9 {
				best = i
			}
		}
		won := 0
		for i := range jobs {
			draw := math.Mod(float64(i)*math.Phi, 1) // spread evenly
			at := Best(choices, func(c job.Choice) (float64, int) {
				for i := range choices {
					if choices[i] == c {
						return r[i], n[i]
					}
				}
				return 0, 0
			}, explore, draw)
			if n[at]++; n[at] == 1 {
				r[at] = order[at]
			} else {
				r[at] = alpha*order[at] + (1-alpha)*r[at]
			}
			if at == best {
				won++
			}
		}
		if won < jobs*85/100 {
			rt.Fatalf("of %d the best ran %d, in all %v", jobs, won, n)
		}
		for i := range n {
			if n[i] < 40 {
				rt.Fatalf("worker %d had no chance: of %d jobs they ran %v", i, jobs, n)
			}
		}
	})
}
