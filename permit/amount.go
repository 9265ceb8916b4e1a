package permit

import (
	"math"

	"github.com/agentsched/agentsched/job"
)

// unlimited in a field of an amount that is a limit means that there is none.
const unlimited = math.MaxInt64

// amount is a quantity of both things that a budget counts. Neither is negative.
type amount struct {
	tokens int64 // input and output together
	micros int64 // micro-dollars: 1,000,000 are one US dollar
}

// limitOf returns a limit of tokens and US dollars, 0 for none. Dollars are rounded down: a limit never grows by rounding.
func limitOf(tokens int64, usd float64) amount {
	a := amount{unlimited, unlimited}
	if tokens > 0 {
		a.tokens = tokens
	}
	if usd > 0 && usd < unlimited/1e6 {
		a.micros = int64(usd*1e6 + 1e-6)
	}
	return a
}

// amountOf returns what a usage takes from a budget.
func amountOf(u job.Usage) amount { return amount{u.Tokens(), micros(u.CostUSD * 1e6)} }

func (a amount) plus(b amount) amount {
	return amount{add(a.tokens, b.tokens), add(a.micros, b.micros)}
}

// minus returns a − b, not below zero. What is unlimited stays so.
func (a amount) minus(b amount) amount {
	return amount{sub(a.tokens, b.tokens), sub(a.micros, b.micros)}
}

// within reports whether a is at most limit.
func (a amount) within(limit amount) bool {
	return a.tokens <= limit.tokens && a.micros <= limit.micros
}

// least returns the smaller of each.
func (a amount) least(b amount) amount {
	return amount{min(a.tokens, b.tokens), min(a.micros, b.micros)}
}

// add saturates, so that an absurd figure of a provider cannot turn a sum negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func sub(a, b int64) int64 {
	if a == unlimited {
		return a
	}
	return max(a-b, 0)
}

// Demand is what a request to a model may use, in tokens, as far as it is known before it is sent. Its cost rises with the
// output, which a request can be told to limit.
type Demand struct {
	Model    string     // for Limits.RequestRates, e.g. "anthropic/claude-opus"
	Input    int64      // at most
	Estimate int64      // of input, probably; at most Input
	Output   int64      // that the request asks for
	Beside   int64      // of output with which it begins beside others; with less only if it could never have as much
	Least    int64      // of output below which it makes no sense to begin; at most Beside, which is at most Output
	Price    *job.Price // nil: no price is known, and nothing is counted in US dollars
	// Token is what a token of input probably costs, in micro-dollars: less than at most where much is read from a cache. 0: at
	// most.
	Token float64
}

// probable is the demand with what its input probably is and costs.
func (d Demand) probable() Demand {
	d.Input = d.Estimate
	if d.Price != nil && d.Token > 0 {
		d.Price = &job.Price{Input: d.Token, Output: d.Price.Output}
	}
	return d
}

// at returns the worst case with o tokens of output.
func (d Demand) at(o int64) amount {
	a := amount{tokens: add(d.Input, o)}
	if d.Price != nil {
		a.micros = micros(dearest(*d.Price)*float64(d.Input) + d.Price.Output*float64(o))
	}
	return a
}

// fit returns how many tokens of output the asked ones can be if the input and they must be within left. Negative: not even
// the input is.
func (d Demand) fit(left amount) int64 {
	o := d.Output
	if left.tokens != unlimited {
		o = min(o, left.tokens-d.Input)
	}
	if left.micros != unlimited && d.Price != nil {
		rest := float64(left.micros) - dearest(*d.Price)*float64(d.Input)
		switch {
		case rest < 0:
			o = -1
		case d.Price.Output > 0:
			o = min(o, int64(math.Min(rest/d.Price.Output, math.MaxInt32)))
		}
		for o >= 0 && !d.at(o).within(left) { // a rounding of the division, once at most
			o--
		}
	}
	return o
}

// dearest returns the most that a token of input can cost, in micro-dollars.
func dearest(p job.Price) float64 {
	most := p.Input
	if p.CachedRead != nil {
		most = max(most, *p.CachedRead)
	}
	if p.CacheWrite != nil {
		most = max(most, *p.CacheWrite, 2*p.Input) // Anthropic's for an hour
	}
	return most
}

// micros rounds up, but for what is only the noise of a float64.
func micros(m float64) int64 {
	if m >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Ceil(m - 1e-6))
}
