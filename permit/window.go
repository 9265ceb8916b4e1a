package permit

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// windows are the costs of the last while, by tenant and length, in the order
// of Limits. Guarded by Gate.mu.
type windows []*window

type windowKey struct {
	tenant job.Tenant // empty: all
	length time.Duration
}

// window sums what was spent within its length, in windowParts parts of it. A
// part counts until its youngest charge is older than the length: what is
// spent is never forgotten too early, and at most one part's width too late.
//
// Times are spans since the gate was made, on the monotonic clock: a jump of
// the wall clock moves nothing.
type window struct {
	key   windowKey
	max   float64       // US dollars
	width time.Duration // of a part
	head  int64         // number of the youngest part: the span [head·width, (head+1)·width)
	spent [windowParts + 1]float64
}

// windowParts bounds the memory of a window, however many charges there are.
const windowParts = 60

func newWindow(key windowKey) *window {
	return &window{key: key, width: (key.length + windowParts - 1) / windowParts}
}

// configured returns the windows of l. One that was there before keeps its
// record, a new one begins with what was spent before.
func (w windows) configured(now time.Duration, l *Limits) windows {
	old, kept := map[windowKey]*window{}, map[windowKey]bool{}
	for _, one := range w {
		old[one.key] = one
	}
	var next windows
	for _, c := range l.CostWindows {
		if c.Window <= 0 || !(c.MaxUSD > 0) {
			continue
		}
		key := windowKey{c.Tenant, c.Window}
		one := old[key]
		if one == nil {
			one = newWindow(key)
			one.recall(now, c.Spent)
			old[key] = one
		}
		if !kept[key] {
			next, kept[key], one.max = append(next, one), true, c.MaxUSD
		}
		one.max = min(one.max, c.MaxUSD) // named twice: the stricter
	}
	return next
}

// check returns why tenant may not begin to spend, or nil.
func (w windows) check(now time.Duration, tenant job.Tenant) *Rejection {
	var refused *Rejection
	for _, one := range w {
		if one.counts(tenant) {
			refused = later(refused, one.check(now))
		}
	}
	return refused
}

func (w windows) charge(now time.Duration, tenant job.Tenant, usd float64) {
	for _, one := range w {
		if one.counts(tenant) {
			one.add(now, usd)
		}
	}
}

func (w *window) counts(tenant job.Tenant) bool { return w.key.tenant == "" || w.key.tenant == tenant }

func (w *window) check(now time.Duration) *Rejection {
	spent := w.sum(now)
	if spent < w.max {
		return nil
	}
	who := "all tenants"
	if w.key.tenant != "" {
		who = "tenant " + string(w.key.tenant)
	}
	return limited(job.WaitCostWindow, w.heals(now), "%s spent %.4f of %.4f US dollars within %s", who, spent, w.max, w.key.length)
}

// add charges usd now.
func (w *window) add(now time.Duration, usd float64) {
	w.advance(now)
	w.spent[w.slot(w.head)] += usd
}

// recall charges what was spent before, each part in the part of its time.
func (w *window) recall(now time.Duration, spent []Spending) {
	w.advance(now)
	for _, s := range spent {
		if s.Ago >= w.key.length {
			continue
		}
		at := now - max(s.Ago, 0)
		part := at / w.width
		if at < 0 { // before the gate was made; rounded down as all parts are
			part = -((w.width - 1 - at) / w.width)
		}
		w.spent[w.slot(int64(part))] += sane(job.Usage{CostUSD: s.USD}).CostUSD
	}
}

// sum returns what counts now. It is added up anew each time, so that no error
// of rounding is carried on.
func (w *window) sum(now time.Duration) float64 {
	w.advance(now)
	var sum float64
	for _, usd := range w.spent {
		sum += usd
	}
	return sum
}

// heals returns in how long the sum will be below the limit if nobody charges:
// when the youngest part has left that is too much together with those after it.
func (w *window) heals(now time.Duration) time.Duration {
	w.advance(now)
	oldest := w.head - windowParts
	var left float64
	for i := w.head; i > oldest; i-- {
		if left += w.spent[w.slot(i)]; left >= w.max {
			return w.leaves(i) - now
		}
	}
	return w.leaves(oldest) - now
}

// leaves returns when part i stops to count.
func (w *window) leaves(i int64) time.Duration {
	return time.Duration(i+windowParts+1) * w.width
}

// advance forgets the parts that now is too late for.
func (w *window) advance(now time.Duration) {
	part := int64(now / w.width)
	for i := max(w.head, part-windowParts-1); i < part; i++ {
		w.spent[w.slot(i+1)] = 0
	}
	w.head = max(w.head, part)
}

func (w *window) slot(part int64) int {
	n := int64(len(w.spent))
	return int(((part % n) + n) % n)
}

// record returns the windows as limits, with what is spent.
func (w windows) record(now time.Duration) []CostWindow {
	all := make([]CostWindow, 0, len(w))
	for _, one := range w {
		all = append(all, CostWindow{Tenant: one.key.tenant, Window: one.key.length, MaxUSD: one.max, Spent: one.parts(now)})
	}
	return all
}

// parts returns what counts now, the oldest first, each part as old as its
// youngest charge can be.
func (w *window) parts(now time.Duration) []Spending {
	w.advance(now)
	var parts []Spending
	for i := w.head - windowParts; i <= w.head; i++ {
		if usd := w.spent[w.slot(i)]; usd > 0 {
			parts = append(parts, Spending{Ago: max(now-time.Duration(i+1)*w.width, 0), USD: usd})
		}
	}
	return parts
}
