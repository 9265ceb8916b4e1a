package policy

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
)

// book is what all policies keep, and with an order it is one. It tells the
// order which tenants could run now and what changes about them.
type book struct {
	order  order
	tuning map[job.Tenant]Tenant
	each   Tenant
	// reputations are those that were measured.
	reputations map[job.Tenant]float64
	ageing      int64 // ns; 0: none
	budget      bounds

	now    int64 // of the latest call
	window window
	used   amount // by all tenants, within the window
	flying amount // asked by all tenants for what is in flight

	tenants map[job.Tenant]*tenant
	all     []*tenant // the same, in an order that depends on the calls alone
	lanes   map[job.Lane]*lane
	spare   []*lane     // for lanes to come
	ahead   heap[*lane] // whose head's time has not come
	newest  int64       // no head of a ready lane is runnable later than that
	turn    uint64
}

// order ranks the tenants that could run now.
type order interface {
	enter(t *tenant)   // t could run, from now on
	changed(t *tenant) // t still could; its head, its use or its settings are others
	leave(t *tenant)   // t could no longer
	// reweigh says that t's settings are others than they were; changed or leave
	// may follow.
	reweigh(t *tenant, was Tenant)
	first() *tenant // nil if there is none

	// bill says that what t has to pay is another by that price: of a job that
	// starts, or of a correction.
	bill(t *tenant, price int64, start bool)
	// stand returns t's part in what there is, and what it has had of it; both
	// in proportion to the other tenants'.
	stand(t *tenant) (part, had float64)
}

// spareLanes bounds how many lanes without a head are kept for others.
const spareLanes = 1024

func newBook(c Config, o order) *book {
	b := &book{
		order: o, each: c.Each, budget: boundsOf(c.Budget),
		now: math.MinInt64, newest: math.MinInt64, window: newWindow(c.Window.Std()),
		tenants: map[job.Tenant]*tenant{}, lanes: map[job.Lane]*lane{}, reputations: map[job.Tenant]float64{},
		ahead: heap[*lane]{before: laneSooner, place: lanePlace},
	}
	if c.Name == NamePriority {
		b.ageing = int64(c.Ageing)
	}
	b.SetTenants(c.Tenants)
	return b
}

func (b *book) Add(h Head) {
	l := b.lanes[h.Lane]
	if l == nil {
		l = b.newLane(h.Lane)
	} else {
		b.takeOut(l)
	}
	l.head, l.at = h, nanos(h.RunnableAt)
	l.rank = b.rank(l)
	b.putIn(l)
	b.refresh(l.tenant)
}

func (b *book) Remove(name job.Lane) {
	l := b.lanes[name]
	if l == nil {
		return
	}
	b.takeOut(l)
	t := l.tenant
	t.lanes--
	delete(b.lanes, name)
	*l = lane{place: -1}
	if len(b.spare) < spareLanes {
		b.spare = append(b.spare, l)
	}
	b.refresh(t)
	b.forget(t)
}

func (b *book) Next(now time.Time) (Head, bool) {
	b.advance(now)
	if b.budget.reached(b.used, b.flying) {
		return Head{}, false
	}
	t := b.order.first()
	if t == nil {
		return Head{}, false
	}
	return t.best().head, true
}

func (b *book) Wake(now time.Time) time.Time {
	b.advance(now)
	var wake time.Time
	if b.ahead.len() > 0 {
		wake = b.ahead.first().head.RunnableAt
	}
	if b.ahead.len() == len(b.lanes) {
		return wake
	}
	if at, any := b.window.next(); any {
		if moves := time.Unix(0, at); wake.IsZero() || moves.Before(wake) {
			wake = moves.In(now.Location())
		}
	}
	return wake
}

func (b *book) Start(name job.Tenant, ask Demand, now time.Time) {
	b.advance(now)
	t := b.tenant(name)
	a := asked(ask)
	t.flight++
	t.flying.add(a)
	b.flying.add(a)
	b.turn++
	t.turn = b.turn
	b.order.bill(t, a.price, true)
	b.refresh(t)
}

func (b *book) Charge(name job.Tenant, used Demand, completions int, now time.Time) {
	b.advance(now)
	t, u := b.tenant(name), remembered(used, max(completions, 0))
	b.order.bill(t, u.price, false)
	b.record(t, u, int64(max(completions, 0)))
}

func (b *book) End(name job.Tenant, ask, used Demand, completed bool, now time.Time) {
	b.advance(now)
	t, a := b.tenant(name), asked(ask)
	u := consumed(used, a, completed)
	if t.flight == 0 {
		a = amount{} // of a job that was never said to be in flight
	} else if t.flight--; t.flight == 0 {
		a = t.flying
	}
	t.flying.sub(a)
	b.flying.sub(a)
	var done int64
	if completed {
		done = 1
	}
	b.order.bill(t, u.price-a.price, false)
	b.record(t, u, done)
}

func (b *book) SetTenants(tenants map[job.Tenant]Tenant) {
	b.tuning = maps.Clone(tenants)
	for _, t := range b.all {
		b.configure(t)
		b.refresh(t)
	}
}

// SetReputation is Reputed's. It is kept while the tenant is not known.
func (b *book) SetReputation(name job.Tenant, r float64) {
	b.reputations[name] = r
	if t := b.tenants[name]; t != nil {
		b.configure(t)
		b.refresh(t)
	}
}

// advance goes on to now: heads become runnable, use leaves the window. A clock
// that was set back makes heads wait again, but nothing return to the window; what
// was used while it stood ahead counts as used now.
func (b *book) advance(now time.Time) {
	n := nanos(now)
	if n < b.newest {
		b.goBack(n)
	}
	b.now = n
	if b.window.back(n) {
		for _, t := range b.all {
			b.window.date(t)
		}
	}
	if b.window.move(n) {
		b.expire()
	}
	for b.ahead.len() > 0 && b.ahead.first().at <= n {
		l := b.ahead.first()
		b.takeOut(l)
		b.putIn(l)
		b.refresh(l.tenant)
	}
}

// goBack takes back that heads are runnable which no longer are.
func (b *book) goBack(now int64) {
	b.now, b.newest = now, now
	for _, t := range b.all {
		for _, l := range slices.Clone(t.ready.items) {
			if l.at > now {
				b.takeOut(l)
				b.putIn(l)
			}
		}
		b.refresh(t)
	}
}

func (b *book) expire() {
	for i := len(b.all) - 1; i >= 0; i-- {
		t := b.all[i]
		if gone, any := b.window.drop(t); any {
			b.used.sub(gone)
			b.refresh(t)
			b.forget(t)
		}
	}
}

func (b *book) record(t *tenant, a amount, done int64) {
	b.window.record(t, a, done)
	b.used.add(a)
	b.refresh(t)
	b.forget(t)
}

// refresh tells the order about a tenant of which something has changed.
func (b *book) refresh(t *tenant) {
	was := t.able
	t.able = t.could()
	switch {
	case was && t.able:
		b.order.changed(t)
	case t.able:
		b.order.enter(t)
	case was:
		b.order.leave(t)
	}
}

// tenant returns the one of that name, known or made known.
func (b *book) tenant(name job.Tenant) *tenant {
	if t := b.tenants[name]; t != nil {
		return t
	}
	t := newTenant(name)
	b.configure(t)
	b.turn++
	t.turn, t.index = b.turn, len(b.all)
	b.all = append(b.all, t)
	b.tenants[name] = t
	return t
}

func (b *book) configure(t *tenant) {
	settings, own := b.tuning[t.name]
	if !own {
		settings = b.each
	}
	if r, any := b.reputations[t.name]; any {
		settings.Reputation = r
	}
	was := t.settings
	t.configure(settings)
	b.order.reweigh(t, was)
}

// forget lets go of a tenant of which there is nothing to remember, so that
// memory is bounded by those that were there within a window.
func (b *book) forget(t *tenant) {
	if t.known() {
		return
	}
	last := b.all[len(b.all)-1]
	b.all[t.index], last.index = last, t.index
	b.all[len(b.all)-1] = nil
	b.all = b.all[:len(b.all)-1]
	delete(b.tenants, t.name)
}

func (b *book) newLane(name job.Lane) *lane {
	l := &lane{place: -1}
	if n := len(b.spare); n > 0 {
		l, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	l.tenant = b.tenant(name.Tenant)
	l.tenant.lanes++
	b.lanes[name] = l
	return l
}

// rank orders heads by priority or, if waiting raises it, by when they would
// have had to become runnable to be as far without a priority. What a head has
// gained by waiting grows alike for all, so the order does not depend on now.
func (b *book) rank(l *lane) int64 {
	priority := int64(l.head.Lane.Priority)
	if b.ageing > 0 {
		return minus(l.at, times(priority, b.ageing))
	}
	return minus(0, priority)
}

func (b *book) putIn(l *lane) {
	if l.ahead = l.at > b.now; l.ahead {
		b.ahead.push(l)
		return
	}
	b.newest = max(b.newest, l.at)
	l.tenant.ready.push(l)
}

func (b *book) takeOut(l *lane) {
	if l.ahead {
		b.ahead.remove(l)
	} else {
		l.tenant.ready.remove(l)
	}
}
