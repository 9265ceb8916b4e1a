package policy

import (
	"cmp"
	"math"
	"time"

	"github.com/agentsched/agentsched/job"
)

// tenant is what is known of one. It is forgotten when it has no lane, nothing
// in flight, and nothing within the window.
type tenant struct {
	// What the one order that is in use ranks by. It stands first, with what is
	// read next, since a pick pays for each line of memory that it touches.
	vruntime float64     // credit
	share    float64     // drf
	tier     int         // credit
	turn     uint64      // when it was last started, or else first known: the lower comes first where all else is equal
	place    int         // in the order's heap; -1
	seat     int         // in deficit's tournament; -1
	ready    heap[*lane] // the lanes whose head is runnable, the best first
	able     bool        // could run now: it is among those that the order ranks

	flight int    // jobs
	flying amount // what was asked for them
	used   amount // within the window
	done   int64  // completions within the window
	window []bucket

	name     job.Tenant
	settings Tenant
	weight   int64 // settings.Weight in units of 1/weightUnit, above 0
	budget   bounds
	lanes    int // with a head, runnable or not
	index    int // in book.all
}

// lane is a lane that has a head. Its place is in its tenant's ready heap or,
// if the head's time has not come, in the book's heap of those.
type lane struct {
	head   Head
	rank   int64 // the lower comes first; see book.rank
	at     int64 // head.RunnableAt
	place  int
	ahead  bool
	tenant *tenant
}

func newTenant(name job.Tenant) *tenant {
	return &tenant{name: name, place: -1, seat: -1,
		ready: heap[*lane]{before: laneBefore, place: lanePlace}}
}

// configure takes what cannot be meant for 0: see Tenant.Validate.
func (t *tenant) configure(s Tenant) {
	if !weightLike(s.Weight) {
		s.Weight = 1
	}
	if !weightLike(s.Credits) {
		s.Credits = s.Weight * referenceCredits
	} else {
		s.Credits = max(s.Credits, minCredits)
	}
	if !(s.Reputation >= 0 && s.Reputation <= 1) {
		s.Reputation = 0
	}
	t.settings = s
	t.weight = max(1, int64(math.Round(s.Weight*weightUnit)))
	t.budget = boundsOf(s.Budget)
}

// best is the head to run next; for a tenant that has a runnable one.
func (t *tenant) best() *lane { return t.ready.first() }

// could says whether a head of the tenant may run.
func (t *tenant) could() bool {
	return t.ready.len() > 0 && !t.full() && !t.budget.reached(t.used, t.flying)
}

func (t *tenant) full() bool {
	return t.settings.MaxConcurrent > 0 && t.flight >= t.settings.MaxConcurrent
}

// known says whether there is anything to remember it for.
func (t *tenant) known() bool { return t.lanes > 0 || t.flight > 0 || len(t.window) > 0 }

// counted is what the tenant has used or is expected to.
func (t *tenant) counted() amount {
	a := t.used
	a.add(t.flying)
	return a
}

// laneBefore orders lanes by rank, then RunnableAt, then ID.
func laneBefore(a, b *lane) bool {
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	if a.at != b.at {
		return a.at < b.at
	}
	return a.head.ID < b.head.ID
}

// laneSooner orders the lanes whose time has not come.
func laneSooner(a, b *lane) bool { return a.at < b.at }

func lanePlace(l *lane) *int     { return &l.place }
func tenantPlace(t *tenant) *int { return &t.place }

// bounds are a Budget in units of an amount; 0: no bound.
type bounds struct{ tokens, cost int64 }

func boundsOf(b Budget) bounds {
	const most = 1 << 62
	return bounds{whole(b.Tokens, tokenUnit, most), whole(b.CostUSD, costUnit, most)}
}

// reached says whether that is as much as is allowed.
func (b bounds) reached(used, flying amount) bool {
	return b.tokens > 0 && used.tokens+flying.tokens >= b.tokens ||
		b.cost > 0 && used.cost+flying.cost >= b.cost
}

// nanos returns t in nanoseconds since 1970. What is further away than an int64
// reaches, the zero time above all, is the first or the last moment there is.
func nanos(t time.Time) int64 {
	const reach = 1 << 33 // seconds, 272 years
	switch s := t.Unix(); {
	case s >= reach:
		return math.MaxInt64
	case s <= -reach:
		return math.MinInt64
	}
	return t.UnixNano()
}

// minus returns a-b, and times a*b for b >= 0, or the nearest that an int64 holds.
func minus(a, b int64) int64 {
	d := a - b
	if (a < b) != (d < 0) {
		return saturated(cmp.Compare(a, b))
	}
	return d
}

func times(a, b int64) int64 {
	p := a * b
	if b != 0 && (p/b != a || a == math.MinInt64) {
		return saturated(cmp.Compare(a, 0))
	}
	return p
}

func saturated(sign int) int64 {
	if sign < 0 {
		return math.MinInt64
	}
	return math.MaxInt64
}
