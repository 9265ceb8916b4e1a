package policy

// drf is dominant resource fairness: A. Ghodsi, M. Zaharia, B. Hindman,
// A. Konwinski, S. Shenker, I. Stoica, Dominant Resource Fairness: Fair
// Allocation of Multiple Resource Types, NSDI 2011, sections 4.1 (Algorithm 1)
// and 4.3 (weights).
//
// A tenant's dominant share is the greatest part that it has of any resource,
// divided by its weight; the tenant with the smallest is next. Tokens and cost
// are consumed: what counts is the use within the window and what is expected
// of jobs in flight. Slots are held: what counts is the jobs in flight. The
// capacity is what parts are taken of, not a bound: see Budget for that. Without
// any capacity slots alone count.
//
// Where shares are equal, the tenant that was started longest ago is next, so
// that a single slot goes round. Nobody starves if each job takes something of
// a resource that counts.
type drf struct {
	line     heap[*tenant]
	capacity amount
}

func newDRF(capacity Demand) *drf {
	const most = 1 << 62
	c := amount{
		tokens: whole(capacity.Tokens, tokenUnit, most),
		cost:   whole(capacity.CostUSD, costUnit, most),
		slots:  whole(capacity.Slots, slotUnit, most),
	}
	if c == (amount{}) {
		c.slots = slotUnit
	}
	return &drf{heap[*tenant]{before: shareBefore, place: tenantPlace}, c}
}

func (d *drf) enter(t *tenant) {
	t.share = d.dominant(t) / t.settings.Weight
	d.line.push(t)
}

func (d *drf) changed(t *tenant) {
	t.share = d.dominant(t) / t.settings.Weight
	d.line.fix(t)
}

func (d *drf) leave(t *tenant) { d.line.remove(t) }

func (d *drf) first() *tenant { return firstIn(&d.line) }

func (d *drf) bill(*tenant, int64, bool) {}

func (d *drf) reweigh(*tenant, Tenant) {}

// stand compares dominant shares, which do not add up to 1 by themselves.
func (d *drf) stand(t *tenant) (part, had float64) { return t.settings.Weight, d.dominant(t) }

func (d *drf) dominant(t *tenant) float64 {
	return max(of(t.used.tokens+t.flying.tokens, d.capacity.tokens),
		of(t.used.cost+t.flying.cost, d.capacity.cost),
		of(t.flying.slots, d.capacity.slots))
}

func of(x, capacity int64) float64 {
	if capacity == 0 {
		return 0
	}
	return float64(x) / float64(capacity)
}

func shareBefore(a, b *tenant) bool {
	if a.share != b.share {
		return a.share < b.share
	}
	return a.turn < b.turn
}
