package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

// dispatches is how many jobs a simulation runs.
const dispatches = 100_000

// client is a tenant of a simulation that never runs out of work.
type client struct {
	name     job.Tenant
	settings Tenant
	priority int
	ask      Demand
	want     float64 // its part of 1 in the end
}

// outcome is what a simulation has brought one tenant.
type outcome struct {
	jobs int
	used Demand
	wait time.Duration // the longest between two of its starts, or to the end
}

// simulate runs jobs in virtual time on so many workers: each job takes 10 to
// 110 s and uses half of what was asked to half as much again.
func simulate(t *testing.T, c Config, workers, jobs int, clients []client) (map[job.Tenant]outcome, []job.Tenant, Policy) {
	t.Helper()
	return simulateWith(t, c, workers, jobs, clients, nil)
}

// simulateWith has started told of the n-th start, and whose it was, from 0.
func simulateWith(t *testing.T, c Config, workers, jobs int, clients []client, started func(p Policy, n int, who job.Tenant)) (map[job.Tenant]outcome, []job.Tenant, Policy) {
	t.Helper()
	c.Tenants = map[job.Tenant]Tenant{}
	for _, cl := range clients {
		c.Tenants[cl.name] = cl.settings
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	type running struct {
		ends time.Time
		head Head
	}
	random := rand.New(rand.NewPCG(3, 4))
	now, id := epoch, 0
	flying, order := []running{}, make([]job.Tenant, 0, jobs)
	out, last := map[job.Tenant]outcome{}, map[job.Tenant]time.Time{}
	add := func(l job.Lane, ask Demand) {
		id++
		p.Add(Head{Lane: l, ID: job.ID(fmt.Sprintf("%08d", id)), RunnableAt: now, Ask: ask})
	}
	for _, cl := range clients {
		add(job.Lane{Tenant: cl.name, Priority: cl.priority}, cl.ask)
		last[cl.name] = now
	}
	waited := func(name job.Tenant) {
		o := out[name]
		o.wait = max(o.wait, now.Sub(last[name]))
		out[name], last[name] = o, now
	}
	for len(order) < jobs {
		if h, any := p.Next(now); any && len(flying) < workers {
			name := h.Lane.Tenant
			waited(name)
			order = append(order, name)
			p.Start(name, h.Ask, now)
			if started != nil {
				started(p, len(order)-1, name)
			}
			add(h.Lane, h.Ask)
			flying = append(flying, running{now.Add(10*time.Second + time.Duration(random.Int64N(int64(100*time.Second)))), h})
			continue
		}
		if len(flying) == 0 {
			t.Fatalf("nothing runs after %d jobs, at %v", len(order), now)
		}
		i := 0
		for j := range flying {
			if flying[j].ends.Before(flying[i].ends) {
				i = j
			}
		}
		r := flying[i]
		flying = slices.Delete(flying, i, i+1)
		now = r.ends
		f := 0.5 + random.Float64()
		used := Demand{Tokens: math.Round(r.head.Ask.Tokens * f), CostUSD: r.head.Ask.CostUSD * f}
		p.End(r.head.Lane.Tenant, r.head.Ask, used, true, now)
		o := out[r.head.Lane.Tenant]
		o.jobs++
		o.used.Tokens += used.Tokens
		o.used.CostUSD += used.CostUSD
		out[r.head.Lane.Tenant] = o
	}
	for _, cl := range clients {
		waited(cl.name)
	}
	return out, order, p
}

// converged fails unless each client has had its part within 1 %.
func converged(t *testing.T, clients []client, out map[job.Tenant]outcome, of func(Demand) float64) {
	t.Helper()
	var sum float64
	for _, o := range out {
		sum += of(o.used)
	}
	for _, cl := range clients {
		if got := of(out[cl.name].used) / sum; math.Abs(got-cl.want) > 0.01 {
			t.Errorf("%s has had %.4f, want %.4f", cl.name, got, cl.want)
		}
	}
}

// served fails if a client was not started for longer than that.
func served(t *testing.T, out map[job.Tenant]outcome, longest time.Duration) {
	t.Helper()
	for name, o := range out {
		if o.wait > longest {
			t.Errorf("%s was not started for %v, want at most %v", name, o.wait, longest)
		}
	}
}

func tokensOf(d Demand) float64 { return d.Tokens }
func costOf(d Demand) float64   { return d.CostUSD }

func TestDeficitConverges(t *testing.T) {
	clients := []client{
		{name: "a", settings: Tenant{Weight: 5}, ask: Demand{Tokens: 40_000}, want: 5 / 10.5},
		{name: "b", settings: Tenant{Weight: 3.5}, ask: Demand{Tokens: 4_000}, want: 3.5 / 10.5},
		{name: "c", settings: Tenant{Weight: 1.5}, ask: Demand{Tokens: 90_000}, want: 1.5 / 10.5},
		{name: "d", settings: Tenant{Weight: 0.5}, ask: Demand{Tokens: 10_000}, want: 0.5 / 10.5},
	}
	out, _, p := simulate(t, Config{Name: NameDeficit}, 8, dispatches, clients)
	converged(t, clients, out, tokensOf)
	served(t, out, 3*time.Hour)
	for _, s := range p.Shares(epoch) { // within the window, too
		if math.Abs(s.Actual-s.Target) > 0.01 {
			t.Errorf("share %+v is not near its target", s)
		}
	}
}

func TestCreditConverges(t *testing.T) {
	clients := []client{
		{name: "contracted", settings: Tenant{Credits: 2, Contracted: true}, ask: Demand{CostUSD: 0.8}, want: 8},
		{name: "reputed", settings: Tenant{Credits: 2, Reputation: 1}, ask: Demand{CostUSD: 0.1}, want: 3},
		{name: "small", settings: Tenant{Credits: 1}, ask: Demand{CostUSD: 2}, want: 1},
	}
	t.Run("weighted", func(t *testing.T) {
		c := weighted(clients, 0)
		out, _, _ := simulate(t, Config{Name: NameCredit, Tiers: TiersWeighted, Beta: 0.5}, 8, dispatches, c)
		converged(t, c, out, costOf)
		served(t, out, time.Hour)
	})
	t.Run("strict", func(t *testing.T) {
		c := append(slices.Clone(clients), client{name: "other", settings: Tenant{Credits: 6, Contracted: true}, ask: Demand{CostUSD: 0.3}, want: 24})
		c[1].want, c[2].want = 0, 0
		c = weighted(c, 0)
		out, _, _ := simulate(t, Config{Name: NameCredit, Beta: 0.5}, 8, dispatches, c)
		converged(t, c, out, costOf)
	})
	t.Run("strict, the marketplace among itself", func(t *testing.T) {
		c := weighted(clients[1:], 0)
		out, _, _ := simulate(t, Config{Name: NameCredit, Beta: 0.5}, 8, dispatches, c)
		converged(t, c, out, costOf)
	})
}

// TestCreditsOfThoseWithoutAny: a tenant that has no credits of its own has a
// thousand for each unit of its weight, also of a weight below 1.
func TestCreditsOfThoseWithoutAny(t *testing.T) {
	c := weighted([]client{
		{name: "rich", settings: Tenant{Credits: 3000}, ask: Demand{CostUSD: 1}, want: 6},
		{name: "poor", settings: Tenant{Credits: 500}, ask: Demand{CostUSD: 1}, want: 1},
		{name: "unset", ask: Demand{CostUSD: 1}, want: 2},
		{name: "half", settings: Tenant{Weight: 0.5}, ask: Demand{CostUSD: 1}, want: 1},
	}, 0)
	out, _, _ := simulate(t, Config{Name: NameCredit, Tiers: TiersWeighted}, 1, dispatches, c)
	converged(t, c, out, costOf)
}

// TestCreditPrice: what a job costs of which nobody knows US dollars: a dollar for a
// million tokens, and without tokens a dollar. Tenants of equal credits start jobs in
// inverse proportion.
func TestCreditPrice(t *testing.T) {
	c := weighted([]client{
		{name: "priced", ask: Demand{CostUSD: 0.1, Tokens: 5}, want: 10},
		{name: "tokens", ask: Demand{Tokens: 50_000}, want: 20},
		{name: "neither", want: 1},
	}, 0)
	_, order, _ := simulate(t, Config{Name: NameCredit}, 1, dispatches, c)
	started := map[job.Tenant]float64{}
	for _, name := range order {
		started[name]++
	}
	for _, cl := range c {
		if got := started[cl.name] / float64(len(order)); math.Abs(got-cl.want) > 0.01 {
			t.Errorf("%s has had %.4f of the starts, want %.4f", cl.name, got, cl.want)
		}
	}
}

// weighted makes what the clients want parts of 1.
func weighted(clients []client, sum float64) []client {
	for _, c := range clients {
		sum += c.want
	}
	clients = slices.Clone(clients)
	for i := range clients {
		clients[i].want /= sum
	}
	return clients
}

func TestDRFConverges(t *testing.T) {
	// a and c are bound by tokens, b by cost; c is to have twice as much.
	capacity := Demand{Tokens: 1e9, CostUSD: 1e4}
	clients := weighted([]client{
		{name: "a", ask: Demand{Tokens: 50_000, CostUSD: 0.1}, want: 1},
		{name: "b", ask: Demand{Tokens: 5_000, CostUSD: 0.9}, want: 1},
		{name: "c", settings: Tenant{Weight: 2}, ask: Demand{Tokens: 90_000, CostUSD: 0.7}, want: 2},
	}, 0)
	out, _, p := simulate(t, Config{Name: NameDRF, Capacity: capacity}, 8, dispatches, clients)
	converged(t, clients, out, func(d Demand) float64 { return max(d.Tokens/capacity.Tokens, d.CostUSD/capacity.CostUSD) })
	served(t, out, time.Hour)
	for _, s := range p.Shares(epoch) {
		if math.Abs(s.Actual-s.Target) > 0.01 {
			t.Errorf("share %+v is not near its target", s)
		}
	}
}

// TestPriorityAgeing has the low one wait as long as its priority is lower, or,
// without ageing, for ever.
func TestPriorityAgeing(t *testing.T) {
	clients := []client{{name: "low", priority: 0}, {name: "high", priority: 5}, {name: "higher", priority: 6}}
	out, _, _ := simulate(t, Config{Name: NamePriority, Ageing: job.Duration(10 * time.Minute)}, 4, dispatches, clients)
	served(t, out, 62*time.Minute)
	out, _, _ = simulate(t, Config{Name: NamePriority}, 4, 1000, clients)
	if got := out["low"].jobs + out["high"].jobs; got != 0 {
		t.Errorf("strict priority ran %d jobs of a lower one", got)
	}
}

// TestSameHistory runs each policy twice; the order of Go's maps differs.
func TestSameHistory(t *testing.T) {
	for _, name := range Names() {
		var clients []client
		for i := range 50 {
			clients = append(clients, client{name: job.Tenant(fmt.Sprintf("t%d", i)), priority: i % 3, ask: Demand{Tokens: 1000, CostUSD: 0.25},
				settings: Tenant{Weight: float64(1 + i%7), Contracted: i%2 == 0, MaxConcurrent: i % 4}})
		}
		c := Config{Name: name, Tiers: TiersWeighted, Ageing: job.Duration(time.Minute), Window: job.Duration(time.Hour)}
		_, first, _ := simulate(t, c, 8, 5000, clients)
		_, second, _ := simulate(t, c, 8, 5000, clients)
		if !slices.Equal(first, second) {
			t.Errorf("%s: the same history gave another order", name)
		}
	}
}
