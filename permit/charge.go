package permit

import (
	"fmt"
	"math"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Stop says that a run has crossed a limit: whoever runs it stops it, as BUDGET.
type Stop struct {
	Limit Limit
	// RetryAfter is when a rolling window has room again; zero for what the
	// permit granted, which does not heal.
	RetryAfter time.Duration
	Message    string
}

// Error returns the sentence.
func (s *Stop) Error() string { return s.Message }

// Limit names what a run crossed.
type Limit string

const (
	// LimitTokens: Grant.Tokens.
	LimitTokens Limit = "tokens"
	// LimitCost: Grant.CostUSD.
	LimitCost Limit = "cost"
	// LimitWindow: a rolling window of cost, of the tenant or of all.
	LimitWindow Limit = "cost_window"
)

// Charge counts what the run has consumed since the last call: against its
// grant, in the record of its job and in the windows of cost, at once. The
// verdict is nil while the run may go on; once it is not, the run must be
// stopped, and what it consumes until it has ended is charged all the same. A
// window that another run has filled stops this one at its next charge, so each
// run brings a window at most one increment beyond its limit.
//
// Only a permit in use is charged; one that is unused or ended is not.
func (p *Permit) Charge(u job.Usage) *Stop {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.used.IsZero() || p.ended {
		return nil
	}
	u = sane(u)
	now := time.Now()
	g.charge(now, p, u)
	if limit, used := p.Tokens, p.charged.Tokens(); limit > 0 && used > limit {
		return &Stop{Limit: LimitTokens, Message: fmt.Sprintf("the run used %d tokens, %d were left of the job's max_tokens", used, limit)}
	}
	if limit, cost := p.CostUSD, p.charged.CostUSD; limit > 0 && cost > limit {
		return &Stop{Limit: LimitCost, Message: fmt.Sprintf("the run cost %.4f US dollars, %.4f were left of the job's cost limit", cost, limit)}
	}
	if u.Tokens() == 0 && u.CostUSD == 0 {
		return nil // it spends nothing: a window has nothing to stop
	}
	if full := g.windows.check(g.uptime(now), p.Tenant); full != nil {
		return &Stop{Limit: LimitWindow, RetryAfter: full.RetryAfter, Message: full.Message}
	}
	return nil
}

// charge books u. Called with g.mu held.
func (g *Gate) charge(now time.Time, p *Permit, u job.Usage) {
	p.charged = p.charged.Add(u)
	g.record.charge(p.Job, u)
	g.windows.charge(g.uptime(now), p.Tenant, u.CostUSD)
}

// uptime is the time that the windows count in.
func (g *Gate) uptime(now time.Time) time.Duration { return now.Sub(g.started) }

// Windows returns the windows of cost with what is spent in each.
func (g *Gate) Windows() []CostWindow {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.windows.record(g.uptime(time.Now()))
}

// sane returns u without what no run can have consumed: a worker that prints a
// negative cost gets nothing back for it, and no sum overflows.
func sane(u job.Usage) job.Usage {
	const most = 1 << 48
	for _, n := range counters(&u) {
		*n = min(max(*n, 0), most)
	}
	if !(u.CostUSD > 0) { // not a number, too
		u.CostUSD = 0
	}
	u.CostUSD = min(u.CostUSD, math.MaxFloat32)
	return u
}

// uncharged returns what of total is not in charged, figure by figure.
func uncharged(total, charged job.Usage) job.Usage {
	rest := total
	have := counters(&charged)
	for i, n := range counters(&rest) {
		*n = max(*n-*have[i], 0)
	}
	rest.CostUSD = max(total.CostUSD-charged.CostUSD, 0)
	return rest
}

// counters returns the figures of u that are whole numbers.
func counters(u *job.Usage) []*int64 {
	return []*int64{
		&u.InputTokens, &u.CachedTokens, &u.CacheWriteTokens, &u.OutputTokens, &u.ReasoningTokens,
		&u.Steps, &u.Commands, &u.CommandMillis,
	}
}
