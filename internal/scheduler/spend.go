package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// recallSpendings tells the machine what earlier schedulers on this store spent within the
// longest window. An attempt counts as a whole when it ended: so the time of a spending is
// never taken too early.
func (s *Scheduler) recallSpendings(ctx context.Context) (err error) {
	s.recalling.Lock()
	defer s.recalling.Unlock()
	var keep time.Duration
	flying := map[job.ID]int{}
	s.loop.ask(func(m *schedule.Machine) {
		if keep = m.Remembers(); keep <= 0 {
			return
		}
		m.Take(time.Now(), schedule.Recall{Begin: true})
		for _, r := range m.Runs() {
			flying[r.Entry.ID] = r.Attempt
		}
	})
	if keep <= 0 {
		return nil
	}
	end := schedule.Recall{Failed: true}
	defer func() { s.loop.post(end) }()
	since := now().Add(-keep)
	entries, _, err := s.cfg.Store.List(ctx, queue.Filter{Since: since, Limit: 1 << 30})
	if err != nil {
		return fmt.Errorf("read what was spent lately: %w", err)
	}
	var parts []schedule.Spending
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
				parts = append(parts, schedule.Spending{At: *a.Ended, Tenant: e.Spec.Tenant, USD: a.Outcome.Usage.CostUSD})
			}
		}
	}
	end = schedule.Recall{Parts: parts}
	return nil
}
