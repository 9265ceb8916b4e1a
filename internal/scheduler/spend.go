package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// spendings is what was spent lately, of all cores together, so that a core
// that starts anew knows how full the cost windows are. Parts of a sixtieth of
// the longest window are kept as one. Guarded by Scheduler.mu.
type spendings struct {
	keep  time.Duration // the longest window; 0: nothing is kept
	parts []spending    // the oldest first

	reading bool       // somebody reads from the store what was spent before
	since   []spending // meanwhile
}

type spending struct {
	at     time.Time // of the latest that the part holds: nothing is forgotten too early
	tenant job.Tenant
	usd    float64
}

// partsOfWindow is how finely the time of a spending is told.
const partsOfWindow = 60

// bound makes the book keep what the windows need.
func (b *spendings) bound(windows []ipc.CostWindow) {
	b.keep = 0
	for _, w := range windows {
		b.keep = max(b.keep, w.Window.Std())
	}
}

// add records that a tenant spent usd at the time.
func (b *spendings) add(at time.Time, tenant job.Tenant, usd float64) {
	if b.keep <= 0 || !(usd > 0) {
		return
	}
	if b.reading {
		b.since = append(b.since, spending{at, tenant, usd})
	}
	for i := len(b.parts) - 1; i >= 0 && at.Sub(b.parts[i].at) < b.keep/partsOfWindow; i-- {
		if b.parts[i].tenant == tenant {
			b.parts[i].usd += usd
			return
		}
	}
	b.parts = append(b.parts, spending{at, tenant, usd})
	old := 0
	for old < len(b.parts) && at.Sub(b.parts[old].at) > b.keep {
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
			ago := max(now.Sub(p.at), 0)
			if ago < w.Window.Std() && (w.Tenant == "" || w.Tenant == p.tenant) {
				w.Spent = append(w.Spent, ipc.Spending{AgoMS: ago.Milliseconds(), USD: p.usd})
			}
		}
	}
	return filled
}

// recallSpendings reads what earlier schedulers on this store spent within the
// longest window. An attempt counts as a whole when it ended: so the time of a
// spending is never taken too early.
func (s *Scheduler) recallSpendings(ctx context.Context) error {
	s.recalling.Lock()
	defer s.recalling.Unlock()
	s.mu.Lock()
	keep := s.spent.keep
	if keep <= 0 {
		s.mu.Unlock()
		return nil
	}
	// What is in the air is counted as it is at this moment, and what comes after it
	// is noted while the store is read: so each cent counts once.
	s.spent.reading, s.spent.since = true, nil
	var parts []spending
	flying := map[job.ID]int{}
	for id, f := range s.live {
		parts = append(parts, spending{now(), f.entry.Spec.Tenant, f.charged})
		flying[id] = f.attempt
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.spent.reading, s.spent.since = false, nil
	}()
	since := now().Add(-keep)
	entries, _, err := s.cfg.Store.List(ctx, queue.Filter{Since: since, Limit: 1 << 30})
	if err != nil {
		return fmt.Errorf("read what was spent lately: %w", err)
	}
	for i := range entries {
		e := &entries[i]
		if !(e.Spent.CostUSD > 0) || e.CoalescedWith != "" {
			continue
		}
		attempts, err := s.cfg.Store.Attempts(ctx, e.ID)
		if err != nil {
			return fmt.Errorf("read what job %s spent: %w", e.ID, err)
		}
		for _, a := range attempts {
			if a.Ended != nil && a.Outcome != nil && a.Ended.After(since) && flying[e.ID] != a.Number {
				parts = append(parts, spending{*a.Ended, e.Spec.Tenant, a.Outcome.Usage.CostUSD})
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parts = append(parts, s.spent.since...)
	slices.SortStableFunc(parts, func(a, b spending) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.tenant, b.tenant)) })
	s.spent.reading, s.spent.parts = false, nil
	for _, p := range parts {
		s.spent.add(p.at, p.tenant, p.usd)
	}
	return nil
}

// charge books what a flight has just spent: for the next core, and for the
// other cores, which are told with the next word to each. Called with s.mu held.
func (s *Scheduler) charge(f *flight, usd float64) {
	if !(usd > 0) {
		return
	}
	tenant := f.entry.Spec.Tenant
	f.charged += usd
	s.spent.add(now(), tenant, usd)
	for c, other := range s.members() {
		if c != f.core {
			other.spend(tenant, usd)
		}
	}
}
