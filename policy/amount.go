package policy

import "math"

// The units of an amount. A thousandth of a token at pricePerToken is a
// billionth of a US dollar.
const (
	tokenUnit = 1e3
	costUnit  = 1e9
	slotUnit  = 1e6

	weightUnit = 1e6

	// limit bounds one job's amount of anything, so that sums stay within an
	// int64: 10¹² tokens, 10⁶ US dollars, 10⁶ workers (slotLimit).
	limit     = 1e15
	slotLimit = 1e12
)

// What a job costs if its US dollars are unknown: a dollar for a million
// tokens, and if there are none either, a dollar for each worker it takes.
const (
	pricePerToken = costUnit / 1e6 / tokenUnit
	pricePerSlot  = costUnit / slotUnit
)

// amount is a Demand in whole units: sums are exact in whatever order they are
// made, what was added can be taken away without a rest, and the same use is
// always the same key.
type amount struct {
	tokens int64 // 1/tokenUnit of a token
	cost   int64 // 1/costUnit of a US dollar
	slots  int64 // 1/slotUnit of a worker

	// work is what deficit counts: the tokens, and of a job that takes none one
	// token, so that jobs without a model are shared out too.
	work int64
	// price is what credit counts, in units of cost: see pricePerToken.
	price int64
}

func (a *amount) add(b amount) {
	a.tokens += b.tokens
	a.cost += b.cost
	a.slots += b.slots
	a.work += b.work
	a.price += b.price
}

func (a *amount) sub(b amount) {
	a.tokens -= b.tokens
	a.cost -= b.cost
	a.slots -= b.slots
	a.work -= b.work
	a.price -= b.price
}

// asked returns what a job in flight counts for. It holds a worker even if
// nobody says so.
func asked(d Demand) amount {
	a := amount{tokens: whole(d.Tokens, tokenUnit, limit), cost: whole(d.CostUSD, costUnit, limit), slots: whole(d.Slots, slotUnit, slotLimit)}
	if a.slots == 0 {
		a.slots = slotUnit
	}
	a.work = max(a.tokens, tokenUnit)
	a.price = firstOf(a.cost, a.tokens*pricePerToken, a.slots*pricePerSlot)
	return a
}

// consumed returns what a job counts for that asked for that and is no longer
// in flight. One that is completed and of which nothing was measured has cost
// what was said.
func consumed(d Demand, ask amount, completed bool) amount {
	a := amount{tokens: whole(d.Tokens, tokenUnit, limit), cost: whole(d.CostUSD, costUnit, limit)}
	a.work = a.tokens
	a.price = firstOf(a.cost, a.tokens*pricePerToken)
	if completed {
		a.work = max(a.work, tokenUnit)
		a.price = firstOf(a.price, ask.price)
	}
	return a
}

// remembered returns what that many completed jobs count for.
func remembered(d Demand, completions int) amount {
	a := amount{tokens: whole(d.Tokens, tokenUnit, limit), cost: whole(d.CostUSD, costUnit, limit)}
	a.work = max(a.tokens, int64(completions)*tokenUnit)
	a.price = firstOf(a.cost, a.tokens*pricePerToken, int64(completions)*slotUnit*pricePerSlot)
	return a
}

// demand returns the amount as users know it.
func (a amount) demand() Demand {
	return Demand{Tokens: float64(a.tokens) / tokenUnit, CostUSD: float64(a.cost) / costUnit, Slots: float64(a.slots) / slotUnit}
}

// whole returns x in units, to the nearest, within [0, limit]; what is not a
// number is 0.
func whole(x, unit, limit float64) int64 {
	switch x *= unit; {
	case !(x > 0):
		return 0
	case x >= limit:
		return int64(limit)
	}
	return int64(math.Round(x))
}

// firstOf returns the first that is not 0.
func firstOf(xs ...int64) int64 {
	for _, x := range xs {
		if x != 0 {
			return x
		}
	}
	return 0
}
