package permit

import (
	"fmt"
	"math"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Stop says that a run has exceeded a limit. The caller must stop the run, as BUDGET. Of
// several limits, those of the job come first: a run that has used up its own budget must
// not wait for a window.
type Stop struct {
	Limit Limit
	// RetryAfter is when a cost window has room again. It is zero for a limit of the job:
	// waiting does not help there.
	RetryAfter time.Duration
	Message    string
}

// Error returns the sentence.
func (s *Stop) Error() string { return s.Message }

// Limit names the limit that a run has exceeded.
type Limit string

const (
	// LimitTokens: the run used more than Grant.Tokens.
	LimitTokens Limit = "tokens"
	// LimitCost: the run cost more than Grant.CostUSD.
	LimitCost Limit = "cost"
	// LimitWindow: a cost window, of the tenant or of all tenants, is full.
	LimitWindow Limit = "cost_window"
)

// Charge books what the run has used since the last call, in the record of its job and in
// the cost windows. It returns nil while the run may go on. Otherwise the caller must stop
// the run; what the run uses until it has ended is still charged, and each further call
// returns a Stop too.
//
// A run may use exactly what it was granted. It may not spend while a window is full, so a
// window that another run has filled stops this one at its next charge, and each run
// takes a window at most one increment beyond its limit. A charge of nothing is not
// stopped by a window.
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
	limit := limitOf(p.Tokens, p.CostUSD).minus(p.ceded)
	if used := p.charged.Tokens(); used > limit.tokens {
		return &Stop{Limit: LimitTokens, Message: fmt.Sprintf("the run used %d tokens, %d were left of the job's max_tokens", used, limit.tokens)}
	}
	// Without others that spend it the limit is exact, and not in whole micro-dollars.
	usd := p.CostUSD
	if p.ceded.micros > 0 {
		usd = float64(limit.micros) / 1e6
	}
	if cost := p.charged.CostUSD; p.CostUSD > 0 && cost > usd {
		return &Stop{Limit: LimitCost, Message: fmt.Sprintf("the run cost %.4f US dollars, %.4f were left of the job's cost limit", cost, usd)}
	}
	if u.Tokens() == 0 && u.CostUSD == 0 {
		return nil // it spends nothing: a window has nothing to stop
	}
	if full := g.windows.check(g.uptime(now), p.Tenant); full != nil {
		return &Stop{Limit: LimitWindow, RetryAfter: full.RetryAfter, Message: full.Message}
	}
	return nil
}

// charge books u for p. Called with g.mu held, from Charge and from the end of the permit:
// together they book each figure of a run's usage once.
func (g *Gate) charge(now time.Time, p *Permit, u job.Usage) {
	p.charged = p.charged.Add(u)
	g.record.charge(p.Job, u)
	g.windows.charge(g.uptime(now), p.Tenant, u.CostUSD)
}

// uptime is now as the windows measure it: the time since the gate was made.
func (g *Gate) uptime(now time.Time) time.Duration { return now.Sub(g.started) }

// Windows returns the cost windows with what is spent in each: Configure of another gate
// takes them as they are, at the same time.
func (g *Gate) Windows() []CostWindow {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.windows.record(g.uptime(time.Now()))
}

// sane returns u without impossible figures: below zero becomes 0, so that a worker that
// prints a negative cost gets nothing back for it, and NaN becomes 0. A figure is cut to
// 2^48 and a cost to MaxFloat32, so that no sum overflows.
func sane(u job.Usage) job.Usage {
	const most = 1 << 48
	for _, n := range counters(&u) {
		*n = min(max(*n, 0), most)
	}
	if !(u.CostUSD > 0) { // also NaN
		u.CostUSD = 0
	}
	u.CostUSD = min(u.CostUSD, math.MaxFloat32)
	return u
}

// uncharged returns max(total - charged, 0), figure by figure: a run may report less at its
// end than it was charged for, and gets nothing back.
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
