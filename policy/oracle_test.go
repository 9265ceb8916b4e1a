package policy

import (
	"cmp"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
)

// oracle is each policy as it would be written if time did not matter: it keeps
// what it was told, and works everything out of that whenever it is asked.
type oracle struct {
	c       Config
	now     int64
	turn    uint64
	tenants map[job.Tenant]*seen
	// reputations are those that were measured.
	reputations map[job.Tenant]float64
	// credit
	floor   [2]float64
	started bool
}

type seen struct {
	name   job.Tenant
	turn   uint64
	heads  map[job.Lane]Head
	flying []Demand
	uses   []use
	able   bool
	// credit
	vruntime float64
	tier     int
}

type use struct {
	at   int64
	what amount
	done int64
}

func newOracle(c Config) *oracle {
	begin := nanos(time.Time{})
	return &oracle{c: c, now: begin, tenants: map[job.Tenant]*seen{}, reputations: map[job.Tenant]float64{}}
}

func (o *oracle) Add(h Head) {
	o.tenant(h.Lane.Tenant).heads[h.Lane] = h
	o.settle()
}

func (o *oracle) Remove(l job.Lane) {
	if s := o.tenants[l.Tenant]; s != nil {
		delete(s.heads, l)
	}
	o.settle()
}

func (o *oracle) Start(t job.Tenant, ask Demand, now time.Time) {
	o.at(now)
	s := o.tenant(t)
	s.flying = append(s.flying, ask)
	o.turn++
	s.turn = o.turn
	o.sort(s)
	o.floor[s.tier] = max(o.floor[s.tier], s.vruntime)
	o.started = true
	o.bill(s, asked(ask).price)
	o.settle()
}

func (o *oracle) Charge(t job.Tenant, used Demand, completions int, now time.Time) {
	o.at(now)
	s, u := o.tenant(t), remembered(used, completions)
	o.sort(s)
	o.bill(s, u.price)
	s.note(o.now, u, int64(completions))
	o.settle()
}

func (o *oracle) End(t job.Tenant, ask, used Demand, completed bool, now time.Time) {
	o.at(now)
	s := o.tenant(t)
	u, declared := consumed(used, asked(ask), completed), int64(0)
	if i := slices.Index(s.flying, ask); i >= 0 {
		s.flying = slices.Delete(s.flying, i, i+1)
		declared = asked(ask).price
	}
	o.sort(s)
	o.bill(s, u.price-declared)
	done := int64(0)
	if completed {
		done = 1
	}
	s.note(o.now, u, done)
	o.settle()
}

func (s *seen) note(at int64, what amount, done int64) {
	if what != (amount{}) || done > 0 {
		s.uses = append(s.uses, use{at, what, done})
	}
}

func (o *oracle) SetTenants(tenants map[job.Tenant]Tenant) {
	was := o.weights()
	o.c.Tenants = tenants
	o.reweigh(was)
	for _, s := range o.tenants {
		if s.able {
			o.sort(s)
		}
	}
	o.settle()
}

func (o *oracle) SetReputation(t job.Tenant, r float64) {
	was := o.weights()
	o.reputations[t] = r
	o.reweigh(was)
	o.settle()
}

// weights are credit's.
func (o *oracle) weights() map[*seen]float64 {
	all := map[*seen]float64{}
	for _, s := range o.tenants {
		all[s] = o.credits(s)
	}
	return all
}

// reweigh has what is in flight paid by the weights as they are now.
func (o *oracle) reweigh(was map[*seen]float64) {
	for s, w := range was {
		var price int64
		for _, d := range s.flying {
			price += asked(d).price
		}
		if now := o.credits(s); now != w {
			s.vruntime += float64(price) / 1e9 * 1000 * (1/now - 1/w)
		}
	}
}

func (o *oracle) Next(now time.Time) (Head, bool) {
	o.at(now)
	var able []*seen
	for _, s := range o.tenants {
		if s.able {
			able = append(able, s)
		}
	}
	if len(able) == 0 || o.spent(o.c.Budget, slices.Collect(maps.Values(o.tenants))...) {
		return Head{}, false
	}
	return o.best(slices.MinFunc(able, o.compare(able))), true
}

func (o *oracle) Wake(now time.Time) time.Time {
	o.at(now)
	var wake time.Time
	earlier := func(at time.Time) {
		if wake.IsZero() || at.Before(wake) {
			wake = at
		}
	}
	runnable := false
	for _, s := range o.tenants {
		for _, h := range s.heads {
			if nanos(h.RunnableAt) > o.now {
				earlier(h.RunnableAt)
			} else {
				runnable = true
			}
		}
	}
	for _, s := range o.tenants {
		for _, u := range s.uses {
			if runnable {
				earlier(time.Unix(0, o.leaves(u)))
			}
		}
	}
	return wake
}

// compare returns the order of those tenants, straight from its definition.
func (o *oracle) compare(able []*seen) func(a, b *seen) int {
	turn := func(a, b *seen) int { return cmp.Compare(a.turn, b.turn) }
	switch o.c.Name {
	case NamePriority:
		return func(a, b *seen) int { return o.compareHeads(o.best(a), o.best(b)) }
	case NameCredit:
		return func(a, b *seen) int {
			return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(a.vruntime, b.vruntime), turn(a, b))
		}
	case NameDRF:
		return func(a, b *seen) int { return cmp.Or(cmp.Compare(o.dominant(a), o.dominant(b)), turn(a, b)) }
	}
	tokens, weights := new(big.Rat), new(big.Rat)
	for _, s := range able {
		tokens.Add(tokens, o.work(s))
		weights.Add(weights, o.weight(s))
	}
	deficit := func(s *seen) *big.Rat {
		d := new(big.Rat).Quo(o.weight(s), weights)
		d.Neg(d)
		if tokens.Sign() == 0 {
			return d
		}
		return d.Add(d, new(big.Rat).Quo(o.work(s), tokens))
	}
	return func(a, b *seen) int {
		first := func(s *seen) int {
			if _, done := o.used(s); done == 0 && len(s.flying) == 0 {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(first(a), first(b)), deficit(a).Cmp(deficit(b)), turn(a, b))
	}
}

func (o *oracle) best(s *seen) Head {
	var runnable []Head
	for _, h := range s.heads {
		if nanos(h.RunnableAt) <= o.now {
			runnable = append(runnable, h)
		}
	}
	return slices.MinFunc(runnable, o.compareHeads)
}

func (o *oracle) compareHeads(a, b Head) int {
	priority := func(h Head) *big.Rat {
		p := big.NewRat(int64(h.Lane.Priority), 1)
		if o.c.Name == NamePriority && o.c.Ageing > 0 {
			p.Add(p, big.NewRat(o.now-nanos(h.RunnableAt), int64(o.c.Ageing)))
		}
		return p
	}
	return cmp.Or(priority(b).Cmp(priority(a)), a.RunnableAt.Compare(b.RunnableAt), cmp.Compare(a.ID, b.ID))
}

func (o *oracle) tenant(name job.Tenant) *seen {
	s := o.tenants[name]
	if s == nil {
		o.turn++
		s = &seen{name: name, turn: o.turn, heads: map[job.Lane]Head{}}
		o.tenants[name] = s
	}
	return s
}

func (o *oracle) at(now time.Time) {
	o.now = nanos(now)
	for _, s := range o.tenants {
		for i := range s.uses {
			s.uses[i].at = min(s.uses[i].at, o.now)
		}
	}
	o.settle()
}

// settle forgets what is past, and lets tenants in that can run again.
func (o *oracle) settle() {
	for name, s := range o.tenants {
		s.uses = slices.DeleteFunc(s.uses, func(u use) bool { return o.leaves(u) <= o.now })
		if len(s.heads)+len(s.flying)+len(s.uses) == 0 {
			delete(o.tenants, name)
			continue
		}
		was := s.able
		s.able = !o.spent(o.settings(s).Budget, s) && slices.ContainsFunc(slices.Collect(maps.Values(s.heads)), func(h Head) bool {
			return nanos(h.RunnableAt) <= o.now
		})
		if bound := o.settings(s).MaxConcurrent; bound > 0 && len(s.flying) >= bound {
			s.able = false
		}
		if s.able && !was {
			o.sort(s)
			s.vruntime = max(s.vruntime, o.floor[s.tier])
		}
	}
}

// leaves returns when a use no longer counts: a window after the end of the
// step that it fell into.
func (o *oracle) leaves(u use) int64 {
	width := (int64(o.c.Window) + buckets - 1) / buckets
	step := new(big.Int).Div(big.NewInt(u.at), big.NewInt(width)).Int64() // Euclidean
	return (step+1)*width + buckets*width
}

func (o *oracle) settings(s *seen) Tenant {
	t, own := o.c.Tenants[s.name]
	if !own {
		t = o.c.Each
	}
	if r, any := o.reputations[s.name]; any {
		t.Reputation = r
	}
	t.Weight = cmp.Or(t.Weight, 1)
	if t.Credits == 0 {
		t.Credits = 1000 * t.Weight
	}
	return t
}

func (o *oracle) used(s *seen) (sum amount, done int64) {
	for _, u := range s.uses {
		sum.add(u.what)
		done += u.done
	}
	return sum, done
}

func (o *oracle) counted(s *seen) amount {
	sum, _ := o.used(s)
	for _, d := range s.flying {
		sum.add(asked(d))
	}
	return sum
}

func (o *oracle) spent(b Budget, of ...*seen) bool {
	var sum amount
	for _, s := range of {
		sum.add(o.counted(s))
	}
	d := sum.demand()
	return b.Tokens > 0 && d.Tokens >= b.Tokens || b.CostUSD > 0 && d.CostUSD >= b.CostUSD
}

func (o *oracle) work(s *seen) *big.Rat   { return big.NewRat(o.counted(s).work, tokenUnit) }
func (o *oracle) weight(s *seen) *big.Rat { return new(big.Rat).SetFloat64(o.settings(s).Weight) }

// dominant divides whole units, as drf does: in US dollars 0.3 is not three times 0.1.
func (o *oracle) dominant(s *seen) float64 {
	d, c, share := o.counted(s), asked(o.c.Capacity), 0.0
	if o.c.Capacity != (Demand{}) && o.c.Capacity.Slots == 0 {
		c.slots = 0
	}
	for _, r := range [][2]int64{{d.tokens, c.tokens}, {d.cost, c.cost}, {d.slots, c.slots}} {
		if r[1] > 0 {
			share = max(share, float64(r[0])/float64(r[1]))
		}
	}
	return share / o.settings(s).Weight
}

func (o *oracle) bill(s *seen, price int64) {
	if o.started {
		s.vruntime += float64(price) / 1e9 * 1000 / o.credits(s)
	}
}

func (o *oracle) credits(s *seen) float64 {
	t, w := o.settings(s), 1.0
	if t.Contracted {
		w = 4
	}
	return max(t.Credits, 1) * w * (1 + o.c.Beta*t.Reputation)
}

func (o *oracle) sort(s *seen) {
	tier := 0
	if o.c.Tiers != TiersWeighted && !o.settings(s).Contracted {
		tier = 1
	}
	if tier != s.tier {
		s.vruntime = o.floor[tier] + max(0, s.vruntime-o.floor[s.tier])
		s.tier = tier
	}
}
