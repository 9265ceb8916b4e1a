package gateway

import (
	"fmt"
	"math"

	"github.com/agentsched/agentsched/job"
)

// Unlimited in a field of an Amount that is granted means that there is no limit.
const Unlimited = math.MaxInt64

// Amount is a quantity of both things that a budget counts. Neither is negative.
type Amount struct {
	Tokens int64 // input and output together
	Micros int64 // micro-dollars: 1,000,000 are one US dollar
}

// Dollars returns US dollars as micro-dollars, rounded down: a limit never grows by rounding.
func Dollars(usd float64) int64 {
	if !(usd > 0) { // also NaN
		return 0
	}
	if usd >= float64(Unlimited)/1e6 {
		return Unlimited
	}
	return int64(usd * 1e6)
}

func (a Amount) plus(b Amount) Amount {
	return Amount{add(a.Tokens, b.Tokens), add(a.Micros, b.Micros)}
}

// minus returns a − b, not below zero. What is unlimited stays so.
func (a Amount) minus(b Amount) Amount {
	return Amount{sub(a.Tokens, b.Tokens), sub(a.Micros, b.Micros)}
}

// within reports whether a is at most limit.
func (a Amount) within(limit Amount) bool {
	return a.Tokens <= limit.Tokens && a.Micros <= limit.Micros
}

// least returns the smaller of each.
func (a Amount) least(b Amount) Amount {
	return Amount{min(a.Tokens, b.Tokens), min(a.Micros, b.Micros)}
}

func (a Amount) String() string {
	return fmt.Sprintf("%d tokens and %.6f US dollars", a.Tokens, float64(a.Micros)/1e6)
}

// add saturates, so that an absurd figure of a provider cannot turn a sum negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func sub(a, b int64) int64 {
	if a == Unlimited {
		return a
	}
	return max(a-b, 0)
}

// demand is what a request may cost, as far as it is known before it is sent. The cost rises with the output, which a
// request can be told to limit.
type demand struct {
	input    int64      // tokens of input at most
	estimate int64      // tokens of input, probably
	output   int64      // tokens of output that the request asks for
	least    int64      // tokens of output with which it may run beside others; equal to output if it named a limit
	floor    int64      // tokens of output below which the request is not limited even when it runs alone
	price    *job.Price // nil: no price is known, and no money limited
}

// at returns the cost of the worst case with o tokens of output.
func (a demand) at(o int64) Amount { return a.cost(a.input, o) }

func (a demand) cost(input, output int64) Amount {
	m := Amount{Tokens: add(input, output)}
	if a.price != nil {
		m.Micros = micros(dearest(*a.price)*float64(input) + a.price.Output*float64(output))
	}
	return m
}

// fit returns how many tokens of output the asked ones can be if input tokens of input and they must be within left.
// Negative: not even the input is.
func (a demand) fit(input int64, left Amount) int64 {
	o := a.output
	if left.Tokens != Unlimited {
		o = min(o, left.Tokens-input)
	}
	if left.Micros != Unlimited && a.price != nil {
		rest := float64(left.Micros) - dearest(*a.price)*float64(input)
		switch {
		case rest < 0:
			o = -1
		case a.price.Output > 0:
			o = min(o, int64(math.Min(rest/a.price.Output, math.MaxInt32)))
		}
		for o >= 0 && !a.cost(input, o).within(left) { // a rounding of the division, once at most
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
		most = max(most, *p.CacheWrite)
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

// amountOf returns what a usage takes from a budget.
func amountOf(u job.Usage) Amount { return Amount{Tokens: u.Tokens(), Micros: micros(u.CostUSD * 1e6)} }
