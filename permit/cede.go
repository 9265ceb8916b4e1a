package permit

import "github.com/agentsched/agentsched/job"

// Budget is a part of a Grant.
type Budget struct {
	Tokens  int64   // 0 means no limit of a Grant, or nothing of it
	CostUSD float64 // likewise, in US dollars
}

// Left returns what the run may still spend, which is neither spent, nor reserved by requests to
// models, nor ceded. A limit that the grant does not have is 0, and limited says which there are.
func (p *Permit) Left() (left Budget, tokens, cost bool) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	a := p.left()
	if tokens = p.Tokens > 0; tokens {
		left.Tokens = a.tokens
	}
	if cost = p.CostUSD > 0; cost {
		left.CostUSD = float64(a.micros) / 1e6
	}
	return left, tokens, cost
}

// left is called with gate.mu held.
func (p *Permit) left() amount {
	return limitOf(p.Tokens, p.CostUSD).minus(p.ceded).minus(amountOf(p.charged)).minus(p.holds.reserved)
}

// Cede sets what others spend of what the run was granted, in all. It may be more than is left.
func (p *Permit) Cede(b Budget) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.ceded = ceded(b)
	p.gate.advance()
}

// CedeMore adds to that, if there is more left than b. It reports whether it did.
func (p *Permit) CedeMore(b Budget) bool {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	more, left := ceded(b), p.left()
	if more.tokens >= left.tokens && p.Tokens > 0 || more.micros >= left.micros && p.CostUSD > 0 {
		return false
	}
	p.ceded = p.ceded.plus(more)
	p.gate.advance()
	return true
}

func ceded(b Budget) amount {
	return amountOf(sane(job.Usage{InputTokens: b.Tokens, CostUSD: b.CostUSD}))
}

// Lend gives back the slot of a permit in use for as long as its run waits for runs that need
// one, and takes it again. Taking it asks nobody: for a time there may be one more run than there
// are slots. No limit of what is spent changes.
func (p *Permit) Lend(lend bool) {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.ended || p.used.IsZero() || p.lent == lend {
		return
	}
	if p.lent = lend; lend {
		g.slots.giveBack(p)
	} else {
		g.slots.add(p.Choice.Worker, p.Tenant, p.Workspace, 1)
	}
}
