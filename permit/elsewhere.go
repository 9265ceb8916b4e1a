package permit

import (
	"cmp"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Held is a permit of another gate under the same limits, as far as limits count it.
type Held struct {
	Tenant    job.Tenant // empty: job.DefaultTenant
	Kind      job.WorkerKind
	Model     string // as Request.Model
	Workspace string // as Request.Workspace
}

// Learn books what was spent at other gates, in US dollars, in the cost windows. Each dollar is
// to be told once: the gate adds them up. What other gates hold at once is not part of it: each
// Request has it in Elsewhere.
func (g *Gate) Learn(spent map[job.Tenant]float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for tenant, usd := range spent {
		g.windows.charge(g.uptime(now), cmp.Or(tenant, job.DefaultTenant), sane(job.Usage{CostUSD: usd}).CostUSD)
	}
}

// Throttle bounds how many permits there may be at once, here and elsewhere together,
// below Limits.MaxConcurrent, for permits requested from now on; 0 lifts it. Runs go on.
// One permit that is given out after the throttle began is always allowed within
// MaxConcurrent, however many older runs there are: without a new run nothing measures
// whether the host is still overloaded.
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

// throttled returns the throttle of the next request; 0: none, since the gate is not
// throttled or has given out no permit since. Called with g.mu held.
func (g *Gate) throttled() int {
	for _, p := range g.live {
		if !p.earlier {
			return g.throttle
		}
	}
	return 0
}
