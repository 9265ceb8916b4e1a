package gateway

import (
	"github.com/agentsched/agentsched/job"
)

// bill is what one request costs. It is charged in steps, of which none takes anything back.
type bill struct {
	provider, model string
	price           *job.Price
	estimate        int64 // tokens of input, if nobody says
	hour            int64 // tokens that were written to a cache for an hour
	total           job.Usage
	charge          func(Charge)
}

// add charges what now is more than what was charged.
func (b *bill) add(now job.Usage, estimated, last bool) {
	more := job.Usage{
		InputTokens:      max(now.InputTokens-b.total.InputTokens, 0),
		CachedTokens:     max(now.CachedTokens-b.total.CachedTokens, 0),
		CacheWriteTokens: max(now.CacheWriteTokens-b.total.CacheWriteTokens, 0),
		OutputTokens:     max(now.OutputTokens-b.total.OutputTokens, 0),
		ReasoningTokens:  max(now.ReasoningTokens-b.total.ReasoningTokens, 0),
	}
	if b.price != nil {
		more.CostUSD, more.CostKnown = max(b.price.Cost(now)+b.surcharge()-b.total.CostUSD, 0), true
	}
	b.total = b.total.Add(more)
	if more.Tokens() > 0 || more.CostUSD > 0 || last {
		b.charge(Charge{Provider: b.provider, Model: b.model, Usage: more, Estimated: estimated, Last: last})
	}
}

// surcharge returns what tokens that are kept for an hour cost more than a price says, in US dollars: of Anthropic, who
// sells both, they cost twice as much as input (docs.anthropic.com, "Prompt caching").
func (b *bill) surcharge() float64 {
	if b.price.CacheWrite == nil {
		return 0
	}
	return float64(b.hour) * max(2*b.price.Input-*b.price.CacheWrite, 0) / 1e6
}

// cut charges an answer that was not heard to its end: what was said of it, and at least what is known to have passed.
func (b *bill) cut(m *meter) {
	u := job.Usage{InputTokens: b.estimate}
	if m != nil {
		b.hour = m.hour
		said := m.usage.InputTokens > 0
		out := max(m.usage.OutputTokens, m.output())
		if said {
			u = m.usage
		}
		u.OutputTokens = out
	}
	b.add(u, true, true)
}
