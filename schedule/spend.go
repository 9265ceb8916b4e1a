package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// Windows are the cost windows that the cores enforce: what counts in them is remembered.
type Windows []ipc.CostWindow

// Recall begins or ends the reading of what earlier schedulers spent. What is spent while
// the store is read counts beside what is read, so that each cent counts once.
type Recall struct {
	Begin  bool
	Failed bool // to read the store: what was known stays
	// Parts are what was read, in any order. Attempts that were in flight when the
	// reading began are left out: Machine.Spendings has told of them.
	Parts []Spending
}

// Spending is what a tenant spent, at the latest at At: nothing is forgotten too early.
type Spending struct {
	At     time.Time
	Tenant job.Tenant
	USD    float64
}

// spendings is what was spent lately, of all cores together, so that a core that starts
// anew knows how full the cost windows are. What a tenant spends within the width of a part
// is kept as one, with its latest time:
//
//	width = max(shortest window / 60, longest window / 3600)
//
// So a dollar counts for at most width too long, and never for too short: a limit is not
// exceeded because a core has died. There are at most 3600 parts of a tenant.
type spendings struct {
	keep  time.Duration // the longest window; 0: nothing is kept
	width time.Duration
	parts []part // by their beginnings

	reading bool       // the store is read for what was spent before
	since   []Spending // meanwhile, and of what was in flight then
}

// part is what a tenant spent from its beginning until Spending.At.
type part struct {
	Spending
	from time.Time
}

// bound keeps what the windows need.
func (b *spendings) bound(windows []ipc.CostWindow) {
	b.keep, b.width = 0, 0
	for _, w := range windows {
		b.keep = max(b.keep, w.Window.Std())
		if b.width == 0 || w.Window.Std() < b.width {
			b.width = w.Window.Std()
		}
	}
	b.width = max(b.width/60, b.keep/3600)
}

// add records that a tenant spent usd at the time.
func (b *spendings) add(at time.Time, tenant job.Tenant, usd float64) {
	if b.keep <= 0 || !(usd > 0) {
		return
	}
	if b.reading {
		b.since = append(b.since, Spending{at, tenant, usd})
	}
	for i := len(b.parts) - 1; i >= 0 && at.Sub(b.parts[i].from) < b.width; i-- {
		if p := &b.parts[i]; p.Tenant == tenant {
			p.USD += usd
			if at.After(p.At) {
				p.At = at
			}
			return
		}
	}
	b.parts = append(b.parts, part{Spending{at, tenant, usd}, at})
	old := 0
	for old < len(b.parts) && at.Sub(b.parts[old].At) > b.keep {
		old++
	}
	b.parts = slices.Delete(b.parts, 0, old)
}

// fill returns the windows with what counts in each at now.
func (b *spendings) fill(now time.Time, windows []ipc.CostWindow) []ipc.CostWindow {
	filled := slices.Clone(windows)
	for i := range filled {
		w := &filled[i]
		w.Spent = nil
		for _, p := range b.parts {
			ago := max(now.Sub(p.At), 0)
			if ago < w.Window.Std() && (w.Tenant == "" || w.Tenant == p.Tenant) {
				w.Spent = append(w.Spent, ipc.Spending{AgoMS: ago.Milliseconds(), USD: p.USD})
			}
		}
	}
	return filled
}

// recall begins a reading with what the flights have spent, or ends it.
func (k *coreBooks) recall(at time.Time, e Recall) {
	b := &k.spent
	if e.Begin {
		b.reading, b.since = true, nil
		for _, id := range sorted(k.flights) {
			if f := k.flights[id]; f.charged > 0 {
				b.since = append(b.since, Spending{wall(at), f.run.Entry.Spec.Tenant, f.charged})
			}
		}
		return
	}
	if e.Failed {
		b.reading, b.since = false, nil
		return
	}
	parts := append(e.Parts, b.since...)
	slices.SortStableFunc(parts, func(x, y Spending) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Tenant, y.Tenant))
	})
	b.reading, b.since, b.parts = false, nil, nil
	for _, p := range parts {
		b.add(p.At, p.Tenant, p.USD)
	}
}
