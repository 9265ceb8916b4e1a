package policy

// credit is fair sharing by virtual runtime, as the Linux scheduler CFS has it,
// with money for time:
//
//	avruntime(c) += cost × 1000 / (credits × w(p) × (1 + β·reputation))
//
// A tenant without credits of its own has 1000 for each unit of its weight.
// w is 4 for contracted tenants and 1 for those of the marketplace; w × (1 + β·reputation)
// is a tenant's effective weight. Reputation is that of its recent work, where
// some was judged (Reputed), else what its settings say, else 0. The tenant
// with the least avruntime is next; with strict tiers the contracted ones come
// before all others, with weighted ones (where no tenant starves) they are in one
// line. Where it is equal, the tenant that was started longest ago is next.
//
// The cost of a job is in US dollars: those that are known or, if there are
// none, a dollar for a million tokens or, if there are none either, a dollar
// for each worker (see amount.price). At its start a job costs what was asked,
// at its end what it has used.
//
// The avruntime is looked at when picking and belongs to the tenant, not to an
// entry: a burst that was enqueued at once overtakes no other tenant. A tenant that
// could not run, because it was idle or held by its own bounds, comes back at
// the least that any tenant was started at since (the virtual time of start-time
// fair queuing: P. Goyal, H. Vin, H. Cheng, SIGCOMM 1996), so that it does not
// save up what it left to others. After a restart all begin alike: what was
// used before (Charge) is in the shares and budgets only.
type credit struct {
	beta   float64
	strict bool
	line   heap[*tenant]
	// floor is where a tenant of a tier comes in: the greatest avruntime at
	// which one was started. It only grows. Weighted tiers have the first only.
	floor   [2]float64
	started bool // something, ever
}

const (
	referenceCredits = 1000.0 // of a tenant that has none of its own and a weight of 1
	minCredits       = 1.0

	contractedFactor  = 4.0
	marketplaceFactor = 1.0

	tierFirst  = 0 // contracted, or all of them
	tierSecond = 1
)

func newCredit(c Config) *credit {
	return &credit{beta: c.Beta, strict: c.Tiers != TiersWeighted,
		line: heap[*tenant]{before: creditBefore, place: tenantPlace}}
}

func (c *credit) enter(t *tenant) {
	c.sort(t)
	t.vruntime = max(t.vruntime, c.floor[t.tier])
	c.line.push(t)
}

func (c *credit) changed(t *tenant) {
	c.sort(t)
	c.line.fix(t)
}

func (c *credit) leave(t *tenant) {
	c.line.remove(t)
	c.sort(t)
}

func (c *credit) first() *tenant { return firstIn(&c.line) }

// bill leaves its place in line to the changed or leave that follows.
func (c *credit) bill(t *tenant, price int64, start bool) {
	c.sort(t)
	if start {
		c.floor[t.tier] = max(c.floor[t.tier], t.vruntime)
		c.started = true
	}
	if c.started {
		t.vruntime += float64(price) / costUnit * referenceCredits / c.weight(t)
	}
}

// stand says of strict tiers that the second has no part while the first waits.
func (c *credit) stand(t *tenant) (part, had float64) {
	had = float64(t.counted().price)
	if first := c.first(); first != nil && first.tier < c.tierOf(t) {
		return 0, had
	}
	return c.weight(t), had
}

// reweigh bills what is in flight by the new weight instead of the old one, so
// that the correction at its end takes back just what was billed. Without it who
// starts jobs while it is well reputed, and ends them when it is not, would be
// given back more than it has paid.
func (c *credit) reweigh(t *tenant, was Tenant) {
	before, now := c.effective(was), c.weight(t)
	if t.flying.price != 0 && before != now {
		t.vruntime += float64(t.flying.price) / costUnit * referenceCredits * (1/now - 1/before)
	}
}

func (c *credit) weight(t *tenant) float64 { return c.effective(t.settings) }

// effective is what a tenant with these settings counts.
func (c *credit) effective(s Tenant) float64 {
	w := marketplaceFactor
	if s.Contracted {
		w = contractedFactor
	}
	return s.Credits * w * (1 + c.beta*s.Reputation)
}

// sort puts a tenant whose settings have changed into its tier, as far behind
// there as it was where it comes from.
func (c *credit) sort(t *tenant) {
	if tier := c.tierOf(t); tier != t.tier {
		t.vruntime = c.floor[tier] + max(0, t.vruntime-c.floor[t.tier])
		t.tier = tier
	}
}

func (c *credit) tierOf(t *tenant) int {
	if c.strict && !t.settings.Contracted {
		return tierSecond
	}
	return tierFirst
}

func creditBefore(a, b *tenant) bool {
	if a.tier != b.tier {
		return a.tier < b.tier
	}
	if a.vruntime != b.vruntime {
		return a.vruntime < b.vruntime
	}
	return a.turn < b.turn
}
