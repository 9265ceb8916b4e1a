package permit

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// windows are the cost windows, in the order of Limits. Guarded by Gate.mu.
type windows []*window

type windowKey struct {
	tenant job.Tenant // empty: all
	length time.Duration
}

// window sums what was spent within its length. It is a ring of windowParts + 1 sums, each
// of one part of the time:
//
//	width  = ⌈length / windowParts⌉
//	part i = [i·width, (i+1)·width), and counts until (i + windowParts + 1)·width
//
// So a charge at time t counts until a time in [t + length, t + length + width]: never too
// short, and at most one sixtieth too long.
//
// Times are spans since the gate was made, by the monotonic clock: a jump of the wall
// clock moves nothing. Parts before that have negative numbers.
type window struct {
	key   windowKey
	max   float64       // US dollars
	width time.Duration // of a part
	head  int64         // number of the youngest part
	spent [windowParts + 1]float64
	holds holds // what requests to models have reserved
}

// windowParts bounds the memory of a window, however many charges there are. With 60, a
// window of an hour moves by the minute.
const windowParts = 60

func newWindow(key windowKey) *window {
	return &window{key: key, width: (key.length + windowParts - 1) / windowParts}
}

// configured returns the windows of l. A window is the same as one of w if tenant and
// length are equal: then it keeps its record. A new one begins with CostWindow.Spent.
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
		one.max = min(one.max, c.MaxUSD) // listed twice: the lower limit holds
	}
	return next
}

// check returns why tenant may not begin to spend, or nil. A full window refuses: the
// sum must be below the limit, not at it.
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
	return limited(job.WaitCostWindow, w.heals(now), "%s spent %.4f of %.4f US dollars within %s", w.whose(), spent, w.max, w.key.length)
}

// whose names who spends, for people.
func (w *window) whose() string {
	if w.key.tenant == "" {
		return "all tenants"
	}
	return "tenant " + string(w.key.tenant)
}

// add charges usd now.
func (w *window) add(now time.Duration, usd float64) {
	w.advance(now)
	w.spent[w.slot(w.head)] += usd
}

// recall charges what was spent before, each spending in the part of its time. What is
// older than the length is left out, an age below zero counts as zero.
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

// sum returns what counts now. It is added up each time, so that rounding errors do not
// accumulate.
func (w *window) sum(now time.Duration) float64 {
	w.advance(now)
	var sum float64
	for _, usd := range w.spent {
		sum += usd
	}
	return sum
}

// heals returns the time until the sum is below the limit if nothing is charged. That is
// when part i leaves, for the largest i with spent[i] + … + spent[head] ≥ max.
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

// leaves returns when part i stops counting.
func (w *window) leaves(i int64) time.Duration {
	return time.Duration(i+windowParts+1) * w.width
}

// advance makes the part of now the youngest, and clears the parts that no longer count.
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

// parts returns what counts now, the oldest first. The age of a part is that of its end,
// the least that its charges can have: a window that recalls it counts it long enough.
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
