package permit

import (
	"cmp"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Held is what a permit of another gate under the same limits counts as.
type Held struct {
	Tenant    job.Tenant // empty: job.DefaultTenant
	Kind      job.WorkerKind
	Model     string // as Request.Model
	Workspace string // as Request.Workspace
}

// News is what other gates did since this one was told last. Each of it is to
// be told once.
type News struct {
	Granted  []Held                 // permits that they gave out
	Returned []Held                 // of those, told before or now, the ones that were not used
	Spent    map[job.Tenant]float64 // US dollars
}

// Learn books what happened at other gates, as if it had happened here: rates
// are debited and windows of cost charged. What is held there at once is not
// news: each Request says it anew.
func (g *Gate) Learn(n News) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, h := range n.Granted {
		g.rates.debit(now, h)
	}
	for _, h := range n.Returned {
		g.rates.credit(now, h)
	}
	for tenant, usd := range n.Spent {
		g.windows.charge(g.uptime(now), cmp.Or(tenant, job.DefaultTenant), sane(job.Usage{CostUSD: usd}).CostUSD)
	}
}

// Throttle bounds how many runs there may be at once, here and elsewhere
// together, below Limits.MaxConcurrent, for permits requested from now on; 0
// lifts it. What runs goes on, and does not use up all of n: one permit that is
// granted after the throttle began is always let through, so that there is news of
// whether it still is needed.
func (g *Gate) Throttle(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.throttle == 0 && n > 0 {
		for _, p := range g.live {
			p.earlier = true
		}
	}
	g.throttle = max(n, 0)
}

// throttled returns how many runs there may be at once for the next request; 0: as
// the limits say. Called with g.mu held.
func (g *Gate) throttled() int {
	for _, p := range g.live {
		if !p.earlier {
			return g.throttle
		}
	}
	return 0
}
