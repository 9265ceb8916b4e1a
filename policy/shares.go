package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func (b *book) Shares(now time.Time) []Share {
	b.advance(now)
	shares := make([]Share, 0, len(b.all))
	var parts, hads float64
	for _, t := range b.all {
		s := Share{Tenant: t.name, InFlight: t.flight, Used: t.used.demand(), Waiting: t.lanes > 0}
		s.Used.Slots = float64(t.flying.slots) / slotUnit
		if s.Waiting {
			s.Held = b.held(t)
		}
		s.Target, s.Actual = b.order.stand(t)
		if c, ok := b.order.(*credit); ok {
			s.Contracted = c.strict && t.settings.Contracted
		}
		parts += s.Target
		hads += s.Actual
		shares = append(shares, s)
	}
	for i := range shares {
		shares[i].Target = part(shares[i].Target, parts)
		shares[i].Actual = part(shares[i].Actual, hads)
	}
	slices.SortFunc(shares, func(a, b Share) int { return strings.Compare(string(a.Tenant), string(b.Tenant)) })
	return shares
}

// held says by which bound nothing of the tenant runs; "": none.
func (b *book) held(t *tenant) string {
	switch {
	case t.full():
		return fmt.Sprintf("%d of its jobs are running, which is max_concurrent", t.flight)
	case t.budget.reached(t.used, t.flying):
		return "its budget is spent: " + spent(t.budget, t.used, t.flying)
	case b.budget.reached(b.used, b.flying):
		return "the budget of all tenants is spent: " + spent(b.budget, b.used, b.flying)
	}
	return ""
}

// spent says how much of a budget that was reached is used.
func spent(limit bounds, used, flying amount) string {
	if limit.tokens > 0 && used.tokens+flying.tokens >= limit.tokens {
		return fmt.Sprintf("%d tokens used and %d expected of running jobs, of %d",
			used.tokens/tokenUnit, flying.tokens/tokenUnit, limit.tokens/tokenUnit)
	}
	return fmt.Sprintf("%.2f US dollars used and %.2f expected of running jobs, of %.2f",
		float64(used.cost)/costUnit, float64(flying.cost)/costUnit, float64(limit.cost)/costUnit)
}

func part(x, of float64) float64 {
	if of == 0 {
		return 0
	}
	return x / of
}
