package sqlite

import (
	"math"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// What an attempt is charged is, field by field, the larger of two figures:
//
//	charged = max(sum of the usage of its stored events, its outcome's usage)
//
// Each event that is stored for the first time and each outcome charges by how
// much it raises that, so that the sum is the same whatever the order in which
// they come and however often. An outcome that says less than the events takes
// nothing back: what was reported while the run went on was consumed, and it is
// the outcome of a worker that was cut short that is not the whole. An event of
// an attempt that has not begun is charged when it begins.
//
// Requests charge in memory; the writer adds a group's charges up and writes
// them before its commit (accounts.go).

// charged is attempts.charged: what the ledger must know of an attempt beyond
// its outcome.
type charged struct {
	Seen    amounts `json:"seen"`              // sum of the events
	Unknown bool    `json:"unknown,omitempty"` // some of their tokens have no price
	Marks   []int64 `json:"marks,omitempty"`   // the steps in which the attempt is counted in ledger.unknown
}

// early stands in attempts.charged while stored events were not charged.
const early = "early"

// debtor is an attempt with what it was charged.
type debtor struct {
	account // of the step that is being charged
	charged
	outcome *job.Usage // nil while it runs
}

func newDebtor(e *standing, worker job.WorkerKind, model string) *debtor {
	return &debtor{account: account{tenant: e.tenant, agent: e.agent, worker: worker, model: model}}
}

// total is what the attempt owes in all.
func (d *debtor) total() amounts {
	if d.outcome == nil {
		return d.Seen
	}
	return d.Seen.max(amountsOf(*d.outcome))
}

// unknown reports whether a part of the total has no price.
func (d *debtor) unknown() bool {
	if d.outcome == nil {
		return d.Unknown
	}
	o := amountsOf(*d.outcome)
	switch {
	case d.outcome.CostKnown && o.Input >= d.Seen.Input && o.Output >= d.Seen.Output:
		return false // its price is that of everything
	case d.outcome.CostKnown:
		return d.Unknown
	}
	return d.Unknown || o.Input > d.Seen.Input || o.Output > d.Seen.Output || o.Cost > d.Seen.Cost
}

// consume charges an event.
func (d *debtor) consume(t *tx, at time.Time, u job.Usage) {
	before := d.total()
	d.Seen = d.Seen.add(amountsOf(u), 1)
	d.Unknown = d.Unknown || unpriced(u)
	d.settle(t, stepOf(at), before, unpriced(u))
}

// end charges the attempt's outcome.
func (d *debtor) end(t *tx, at time.Time, u job.Usage) {
	before := d.total()
	d.outcome = &u
	d.settle(t, stepOf(at), before, !u.CostKnown && d.total() != before)
}

// settle posts what the total grew by since before.
func (d *debtor) settle(t *tx, step int64, before amounts, unpriced bool) {
	d.step = step
	c := charge{amounts: d.total().add(before, -1)}
	switch unknown := d.unknown(); {
	case !unknown:
		for _, m := range d.Marks {
			a := d.account
			a.step = m
			t.accounts.post(a, charge{unknown: -1})
		}
		d.Marks = nil
	case len(d.Marks) == 0 || unpriced && !slices.Contains(d.Marks, step):
		c.unknown = 1
		d.Marks = append(d.Marks, step)
	}
	t.accounts.post(d.account, c)
}

func unpriced(u job.Usage) bool { return !u.CostKnown && (u.Tokens() > 0 || u.CostUSD > 0) }

// chargeEvent charges an event that was stored for the first time.
func (e *standing) chargeEvent(ev *job.Event) error {
	var worker job.WorkerKind
	var model, record, outcome string
	var started time.Time
	found, err := e.tx.row(`SELECT worker, model, started_at, charged, outcome FROM attempts WHERE entry = ? AND number = ?`,
		[]any{e.seq, ev.Attempt}, &worker, &model, &started, &record, &outcome)
	if err != nil || !found {
		return err // it has not begun
	}
	d := newDebtor(e, worker, model)
	if outcome != "" {
		var o struct{ Usage job.Usage }
		if err := decode(outcome, &o); err != nil {
			return err
		}
		d.outcome = &o.Usage
	}
	if record == early {
		err = e.chargeStored(d, ev.Attempt, started) // ev among them
	} else if err = decode(record, &d.charged); err == nil {
		d.consume(e.tx, timeOr(ev.Time, started), *ev.Usage)
	}
	if err != nil {
		return err
	}
	return e.keepCharged(ev.Attempt, d)
}

// chargeOutcome charges an attempt's outcome, its time and itself.
func (e *standing) chargeOutcome(r run, u job.Usage, took time.Duration, ended time.Time) error {
	d := newDebtor(e, r.worker, r.model)
	if r.charged == early {
		if err := e.chargeStored(d, r.number, r.started); err != nil {
			return err
		}
	} else if err := decode(r.charged, &d.charged); err != nil {
		return err
	}
	d.end(e.tx, ended, u)
	e.tx.accounts.post(d.account, charge{wall: int64(took), attempts: 1})
	if r.charged == "" && len(d.Marks) == 0 {
		return nil // as most of them: no events, and nothing to remember
	}
	return e.keepCharged(r.number, d)
}

// chargeEarly charges what is stored of an attempt that begins.
func (e *standing) chargeEarly(r run) error {
	d := newDebtor(e, r.worker, r.model)
	if err := e.chargeStored(d, r.number, r.started); err != nil {
		return err
	}
	return e.keepCharged(r.number, d)
}

// chargeStored charges all events that are stored of an attempt.
func (e *standing) chargeStored(d *debtor, attempt int, started time.Time) error {
	return e.usageEvents(attempt, func(ev *job.Event) { d.consume(e.tx, timeOr(ev.Time, started), *ev.Usage) })
}

func (e *standing) keepCharged(attempt int, d *debtor) error {
	text, err := encode(d.charged)
	if err != nil {
		return err
	}
	return e.tx.exec(`UPDATE attempts SET charged = ? WHERE entry = ? AND number = ?`, text, e.seq, attempt)
}

// chargeSuccess counts an entry that is about to be completed as succeeded, and
// those that get its result, to the attempt that did it; without one, to none.
func (e *standing) chargeSuccess(r run, at time.Time) error {
	a := account{tenant: e.tenant, step: stepOf(at), agent: e.agent, worker: r.worker, model: r.model}
	e.tx.accounts.post(a, charge{completed: 1})
	if e.key == "" {
		return nil
	}
	return e.tx.rows(`SELECT agent, count(*) FROM entries`+ofWaiter+` AND coalesced_with = ? GROUP BY agent`,
		[]any{string(e.id), string(e.id)}, func(rows scanner) error {
			var n int64
			if err := rows.Scan(&a.agent, &n); err != nil {
				return err
			}
			e.tx.accounts.post(a, charge{completed: n})
			return nil
		})
}

// amounts are a job.Usage in whole numbers, so that no order of additions
// changes a sum.
type amounts struct {
	Input      int64 `json:"i,omitempty"`
	Cached     int64 `json:"c,omitempty"`
	CacheWrite int64 `json:"w,omitempty"`
	Output     int64 `json:"o,omitempty"`
	Reasoning  int64 `json:"r,omitempty"`
	Cost       int64 `json:"usd,omitempty"` // billionths
	Steps      int64 `json:"s,omitempty"`
	Commands   int64 `json:"n,omitempty"`
	CommandMS  int64 `json:"ms,omitempty"`
}

// usdParts is how many amounts.Cost has in a US dollar.
const usdParts = 1e9

// amountsOf leaves out what is less than nothing: usage only grows.
func amountsOf(u job.Usage) amounts {
	a := amounts{u.InputTokens, u.CachedTokens, u.CacheWriteTokens, u.OutputTokens, u.ReasoningTokens,
		parts(u.CostUSD), u.Steps, u.Commands, u.CommandMillis}
	return a.max(amounts{})
}

func parts(usd float64) int64 {
	switch p := math.Round(usd * usdParts); {
	case p >= math.MaxInt64:
		return math.MaxInt64
	case p > 0:
		return int64(p)
	}
	return 0 // NaN, too
}

// each combines two amounts field by field.
func (a amounts) each(b amounts, f func(x, y int64) int64) amounts {
	return amounts{f(a.Input, b.Input), f(a.Cached, b.Cached), f(a.CacheWrite, b.CacheWrite), f(a.Output, b.Output),
		f(a.Reasoning, b.Reasoning), f(a.Cost, b.Cost), f(a.Steps, b.Steps), f(a.Commands, b.Commands), f(a.CommandMS, b.CommandMS)}
}

// add returns a + n·b.
func (a amounts) add(b amounts, n int64) amounts {
	return a.each(b, func(x, y int64) int64 { return x + n*y })
}

func (a amounts) max(b amounts) amounts {
	return a.each(b, func(x, y int64) int64 { return max(x, y) })
}

// stepSeconds is queue.AccountStep.
const stepSeconds = int64(queue.AccountStep / time.Second)

// stepOf returns the number of the step that t lies in.
func stepOf(t time.Time) int64 {
	s := t.Unix()
	step := s / stepSeconds
	if s%stepSeconds < 0 {
		step--
	}
	return step
}

// stepStart is when a step begins.
func stepStart(step int64) time.Time { return time.Unix(step*stepSeconds, 0).UTC() }

// timeOr returns t, or another time if it is not given.
func timeOr(t, or time.Time) time.Time {
	if t.IsZero() {
		return or
	}
	return t
}
