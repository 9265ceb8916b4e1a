package permit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
)

// holds are what requests to models have reserved in a budget: the grant of a permit, or a cost window. Guarded by Gate.mu.
type holds struct {
	reserved amount
	running  int          // reservations
	alone    *Reservation // has the budget to itself
}

// budget is one at a time, as Gate.budgets reads it.
type budget struct {
	*holds
	window       *window // nil: the grant of the permit
	limit, spent amount
}

// budgets returns what the requests of a run are charged to: what it was granted of its job's limits, and the cost windows
// that count its tenant, unless they are shared. Called with g.mu held.
func (g *Gate) budgets(now time.Time, p *Permit) []budget {
	all := []budget{{&p.holds, nil, limitOf(p.Tokens, p.CostUSD).minus(p.ceded), amountOf(p.charged)}}
	for _, w := range g.windows {
		if g.shared == nil && w.counts(p.Tenant) {
			all = append(all, budget{&w.holds, w, limitOf(0, w.max), amount{micros: micros(w.sum(g.uptime(now)) * 1e6)}})
		}
	}
	return all
}

// left is what is neither spent nor reserved, rest what is not spent.
func (b *budget) left() amount { return b.rest().minus(b.reserved) }

func (b *budget) rest() amount { return b.limit.minus(b.spent) }

// stop says that a request must not begin, which needs that much at least; zero if none may.
func (b *budget) stop(now time.Duration, need amount) *Stop {
	s, whose, within := &Stop{Limit: LimitCost}, "the job's budget", ""
	spent, limit, needs := b.spent, b.limit, fmt.Sprintf("%.4f US dollars", float64(need.micros)/1e6)
	switch {
	case b.window != nil:
		s.Limit, s.RetryAfter = LimitWindow, b.window.heals(now)
		whose, within = "the budget of "+b.window.whose(), fmt.Sprintf(" within %s", b.window.key.length)
		limit = limitOf(0, b.window.max)
	case spent.tokens >= limit.tokens || spent.plus(need).tokens > limit.tokens:
		s.Limit, needs = LimitTokens, fmt.Sprintf("%d tokens", need.tokens)
	}
	used := fmt.Sprintf("%.4f of %.4f US dollars", float64(spent.micros)/1e6, float64(limit.micros)/1e6)
	if s.Limit == LimitTokens {
		used = fmt.Sprintf("%d of %d tokens", spent.tokens, limit.tokens)
	}
	if s.Message = fmt.Sprintf("%s is used up: %s%s", whose, used, within); need != (amount{}) {
		s.Message = fmt.Sprintf("what is left of %s does not pay for the next request, which needs about %s: %s are used%s", whose, needs, used, within)
	}
	return s
}

// waiter is a request that has not begun. Its channel has room for the one answer.
type waiter struct {
	permit *Permit
	demand Demand
	answer chan answer
}

type answer struct {
	reservation *Reservation
	err         error
}

// Reservation is what a request to a model may use.
type Reservation struct {
	// Output is how many tokens of output the request may be answered with, at most Demand.Output.
	Output int64

	permit *Permit
	of     []*holds // as they were: a window that was removed and set again is another
	whole  []amount // what was reserved in each
	held   []amount // what of it is still reserved
	spent  job.Usage
	ended  bool
	paced  paced
	shared SharedReservation // nil: nothing is shared
}

// Reserve waits until the run may begin a request to a model: until the rates of the model let it, and then until it can
// reserve its worst case in all budgets that count the run: what it was granted of its job's limits, and the cost windows
// of its tenant and of all. A budget answers those who want it in the order in which they came:
//
//	spent ≥ limit                                 it is refused
//	limit < spent + estimate + least output       it is refused
//	spent + reserved + worst ≤ limit              it begins
//	spent + worst ≤ limit < all of these          it waits until others have ended
//	limit < spent + worst                         it begins as soon as nothing else is reserved in that budget, with as much
//	                                              output as the estimate leaves; nothing else begins there before it has ended
//
// where worst is with Demand.Beside tokens of output. So a budget is exceeded by no more than what responses used beyond
// what they had reserved, and nothing begins in one that is used up.
//
// The error is a *Stop if it is refused, as the caller must stop the run then; it wraps ErrUnknown if the permit is not in
// use; else it is the cause of ctx. The caller ends the reservation.
func (p *Permit) Reserve(ctx context.Context, d Demand) (*Reservation, error) {
	g := p.gate
	paced, err := g.pace(ctx, d)
	if err != nil {
		return nil, err
	}
	r, err := g.reserve(ctx, p, d)
	if err != nil {
		paced.unsent()
		return nil, err
	}
	r.paced = paced
	if _, _, shared := g.others(); shared != nil {
		d.Output = r.Output
		if r.shared, err = shared.Reserve(ctx, p, d); err != nil {
			r.unsent()
			return nil, err
		}
		r.Output = min(r.Output, r.shared.Output())
	}
	return r, nil
}

// Adopt books a request to a model that is under way already, with at most d.Output tokens of output, as another gate allowed
// it. It waits for nothing and is never refused.
func (p *Permit) Adopt(d Demand) *Reservation {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &Reservation{Output: d.Output, permit: p}
	r.take(g.budgets(time.Now(), p), d.at(d.Output))
	return r
}

// unsent ends a reservation whose request was not sent.
func (r *Reservation) unsent() {
	r.paced.unsent()
	g := r.permit.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	r.end()
}

func (g *Gate) reserve(ctx context.Context, p *Permit, d Demand) (*Reservation, error) {
	w := &waiter{permit: p, demand: d, answer: make(chan answer, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	g.advance()
	g.mu.Unlock()
	select {
	case got := <-w.answer:
		return got.reservation, got.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case got := <-w.answer: // it was answered meanwhile
		if got.reservation != nil {
			got.reservation.end()
		}
	default:
		g.waiting = slices.DeleteFunc(g.waiting, func(o *waiter) bool { return o == w })
		g.advance()
	}
	return nil, context.Cause(ctx)
}

// advance answers the requests that need not wait any more. One that waits for a budget keeps later ones from it, so that
// small ones do not starve a large one. Called with g.mu held after what ends a reservation or changes a limit.
func (g *Gate) advance() {
	if len(g.waiting) == 0 {
		return
	}
	now := time.Now()
	wanted := map[*holds]bool{}
	waiting := g.waiting[:0]
	for _, w := range g.waiting {
		budgets := g.budgets(now, w.permit)
		blocked := slices.ContainsFunc(budgets, func(b budget) bool { return wanted[b.holds] })
		r, short, err := g.try(now, w, budgets, blocked)
		if r != nil || err != nil {
			w.answer <- answer{r, err}
			continue
		}
		if blocked {
			short = budgets // it comes before whoever comes after it
		}
		for _, b := range short {
			wanted[b.holds] = true
		}
		waiting = append(waiting, w)
	}
	clear(g.waiting[len(waiting):])
	g.waiting = waiting
}

// try reserves for w, or returns the budgets that it waits for, or why it is refused. A blocked one is only refused.
func (g *Gate) try(now time.Time, w *waiter, budgets []budget, blocked bool) (r *Reservation, short []budget, err error) {
	if w.permit.used.IsZero() || w.permit.ended {
		return nil, nil, fmt.Errorf("permit %s: %w", w.permit.ID, ErrUnknown)
	}
	d, likely := w.demand, w.demand.probable()
	left, rest := limitOf(0, 0), limitOf(0, 0)
	for i := range budgets {
		b := &budgets[i]
		if b.spent.tokens >= b.limit.tokens || b.spent.micros >= b.limit.micros {
			return nil, nil, b.stop(g.uptime(now), amount{})
		}
		if likely.fit(b.rest()) < d.Least {
			return nil, nil, b.stop(g.uptime(now), likely.at(d.Least))
		}
		left, rest = left.least(b.left()), rest.least(b.rest())
	}
	if blocked {
		return nil, nil, nil
	}
	// Beside others if it can be, alone where it must be.
	output := d.fit(left)
	alone := d.fit(rest) < d.Beside
	if alone {
		output = d.Beside
	}
	worst := d.at(max(output, d.Beside))
	beside := limitOf(0, 0) // left in the budgets where others may run, too
	for _, b := range budgets {
		fits := worst.within(b.left())
		if fits {
			beside = beside.least(b.left())
		}
		if b.alone != nil || !fits && (worst.within(b.rest()) || b.running > 0) {
			short = append(short, b)
		}
	}
	if len(short) > 0 {
		return nil, short, nil
	}
	if alone {
		output = min(likely.fit(rest), d.fit(beside)) // which is at most what was asked for
		worst = d.at(output)
	}
	r = &Reservation{Output: output, permit: w.permit}
	r.take(budgets, worst)
	return r, nil, nil
}

// take reserves the worst case in each budget; where it does not fit, what is left, and the budget for this one alone.
// Called with g.mu held.
func (r *Reservation) take(budgets []budget, worst amount) {
	for _, b := range budgets {
		held := worst
		if !worst.within(b.left()) {
			b.alone, held = r, worst.least(b.left())
		}
		b.reserved = b.reserved.plus(held)
		b.running++
		r.of, r.whole, r.held = append(r.of, b.holds), append(r.whole, held), append(r.held, held)
	}
	r.changed()
}

// changed is called with g.mu held.
func (r *Reservation) changed() {
	if f := r.permit.gate.observe; f != nil {
		f(r)
	}
}

// Charge books what the request has used since the last call, as Permit.Charge does, in place of what it had reserved. It
// stops nothing: what the request reserved is its own.
func (r *Reservation) Charge(u job.Usage) {
	g := r.permit.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.ended || r.permit.ended {
		return
	}
	u = sane(u)
	g.charge(time.Now(), r.permit, u)
	r.spent = r.spent.Add(u)
	spent := amountOf(r.spent)
	for i := range r.held {
		r.hold(i, r.whole[i].minus(spent).least(r.held[i]))
	}
	r.changed()
}

// hold changes what is still reserved in a budget. Called with g.mu held.
func (r *Reservation) hold(i int, a amount) {
	r.of[i].reserved = r.of[i].reserved.minus(r.held[i]).plus(a)
	r.held[i] = a
}

// End gives back what the request has not used of what it reserved. Ending twice changes nothing.
func (r *Reservation) End() {
	r.permit.gate.mu.Lock()
	ended, spent := r.ended, r.spent
	if !ended {
		r.paced.end(spent.Tokens())
	}
	r.end()
	r.permit.gate.mu.Unlock()
	if !ended && r.shared != nil {
		r.shared.End(spent)
	}
}

func (r *Reservation) end() {
	if r.ended {
		return
	}
	r.ended = true
	for i, h := range r.of {
		r.hold(i, amount{})
		h.running--
		if h.alone == r {
			h.alone = nil
		}
	}
	r.changed()
	r.permit.gate.advance()
}
