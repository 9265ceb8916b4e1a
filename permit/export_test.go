package permit

import (
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Auditor looks at the budgets of a gate whenever a request to a model begins, is charged or ends.
type Auditor struct {
	Honest bool // no response says more than it may

	Bad                          []string
	Begun, Beside, Alone, Beyond int // requests: begun, begun beside others, alone in some budget, and that used more than was reserved

	gate   *Gate
	known  map[*Reservation]amount // what was charged
	beyond map[*holds]amount       // what was used beyond what was reserved
	jobs   map[job.ID]amount       // the same by job, of all attempts
	limits map[job.ID]job.Limits
}

// Audit begins to look at a gate.
func Audit(g *Gate, honest bool) *Auditor {
	a := &Auditor{Honest: honest, gate: g, known: map[*Reservation]amount{}, beyond: map[*holds]amount{}, jobs: map[job.ID]amount{}, limits: map[job.ID]job.Limits{}}
	g.observe = a.look
	return a
}

// Limit tells the limits of a job, which hold for all its attempts together.
func (a *Auditor) Limit(id job.ID, l job.Limits) {
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	a.limits[id] = l
}

// Spent returns the tokens of a job, of all attempts, and whether anything is still reserved or waits.
func (a *Auditor) Spent(id job.ID) (tokens int64, open bool) {
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	for _, w := range a.gate.windows {
		open = open || w.holds != holds{}
	}
	return a.gate.record.of(id).spent.Tokens(), open || len(a.gate.waiting) > 0
}

func (a *Auditor) look(r *Reservation) {
	bad := func(format string, values ...any) { a.Bad = append(a.Bad, fmt.Sprintf(format, values...)) }
	budgets := a.gate.budgets(time.Now(), r.permit)
	before, begun := a.known[r]
	now := amountOf(r.spent)
	a.known[r] = now
	if r.ended {
		delete(a.known, r)
	}
	if !begun {
		a.Begun++
		alone, beside := false, false
		for _, b := range budgets {
			if b.spent.tokens >= b.limit.tokens || b.spent.micros >= b.limit.micros {
				bad("a request began although %+v of %+v are spent", b.spent, b.limit)
			}
			alone, beside = alone || b.alone == r, beside || b.running > 1
		}
		if beside {
			a.Beside++
		}
		if alone {
			a.Alone++
		}
	}
	over := func(i int) amount { return now.minus(r.whole[i]).minus(before.minus(r.whole[i])) }
	any := false
	for i, h := range r.of {
		any = any || over(i) != amount{}
		a.beyond[h] = a.beyond[h].plus(over(i))
	}
	a.jobs[r.permit.Job] = a.jobs[r.permit.Job].plus(over(0)) // the first budget is what the job granted
	if any {
		a.Beyond++
		if a.Honest {
			bad("an honest response used %+v, reserved were %+v", now, r.whole)
		}
	}
	for _, b := range budgets {
		if b.reserved.tokens < 0 || b.reserved.micros < 0 || !b.spent.plus(b.reserved).within(b.limit.plus(a.beyond[b.holds])) {
			bad("%+v spent, %+v reserved, %+v beyond reservations, of %+v", b.spent, b.reserved, a.beyond[b.holds], b.limit)
		}
		if b.alone != nil && b.running != 1 {
			bad("%d requests run beside one that has the budget to itself", b.running)
		}
	}
	l := a.limits[r.permit.Job]
	spent := amountOf(a.gate.record.of(r.permit.Job).spent)
	if !spent.within(limitOf(l.MaxTokens, l.MaxCostUSD).plus(a.jobs[r.permit.Job]).plus(amount{micros: 2})) { // 2: roundings of two attempts
		bad("job %s: %+v spent by all attempts, %+v beyond reservations, of %+v", r.permit.Job, spent, a.jobs[r.permit.Job], l)
	}
}
