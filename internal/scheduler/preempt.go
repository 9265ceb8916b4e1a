package scheduler

import (
	"context"
	"fmt"

	"github.com/agentsched/agentsched/queue"
)

// preempt asks runs to stop at a step's boundary that stand in the way: of a job
// of the same tenant with a higher priority, for which there is no room; or that
// go on using what their owner has used up. Only workers that keep steps can, and
// nothing of what they have done is lost. Each run is asked once.
func (s *Scheduler) preempt(ctx context.Context) error {
	if slots, _ := s.turns.slots(); slots == 0 && s.inFlight() > 0 {
		if f, reason := s.inTheWay(); f != nil {
			s.askToStop(ctx, f, reason)
		}
	}
	return s.stopUsers(ctx)
}

// askToStop asks a run, once, to stop at a step's boundary. It does not wait for the
// answer.
func (s *Scheduler) askToStop(ctx context.Context, f *flight, reason string) {
	s.mu.Lock()
	f.preempted = true
	s.mu.Unlock()
	s.drives.Go(func() { // its core may take its time
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		_, _ = s.checkpoint(ctx, f, reason) // if it cannot, it has its slot until it ends
	})
}

// inTheWay returns a run that keeps a more urgent job of its tenant waiting: of
// the least urgent ones, the one that began last.
func (s *Scheduler) inTheWay() (*flight, string) {
	urgent := s.turns.urgent()
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *flight
	for _, f := range s.live {
		p, waits := urgent[f.entry.Spec.Tenant]
		if !waits || p <= f.entry.Spec.Priority || f.preempted || f.cancelled || f.settled || !f.running {
			continue
		}
		if found == nil || f.entry.Spec.Priority < found.entry.Spec.Priority ||
			f.entry.Spec.Priority == found.entry.Spec.Priority && f.began.After(found.began) {
			found = f
		}
	}
	if found == nil {
		return nil, ""
	}
	return found, fmt.Sprintf("a job of priority %d waits for its place", urgent[found.entry.Spec.Tenant])
}

// stopUsers asks the runs of owners for a checkpoint that have used up what they
// were granted: nothing more of theirs is claimed, and these would go on for long.
func (s *Scheduler) stopUsers(ctx context.Context) error {
	if s.inFlight() == 0 {
		return nil
	}
	grants, err := s.cfg.Store.Grants(ctx)
	if err != nil {
		return fmt.Errorf("look for budgets that are used up: %w", err)
	}
	for _, g := range grants {
		flights := s.flightsOf(g.Owner)
		if len(flights) == 0 || g.Tokens == 0 && g.CostUSD == 0 && g.Wall == 0 {
			continue
		}
		f := queue.AccountFilter{Tenant: g.Tenant, Agent: g.Agent}
		if g.Window > 0 {
			f.Since = now().Add(-g.Window.Std())
		}
		used, err := s.cfg.Store.Accounts(ctx, f)
		if err != nil {
			return fmt.Errorf("look for budgets that are used up: %w", err)
		}
		if len(used) == 0 || !g.UsedUp(&used[0]) {
			continue
		}
		for _, f := range flights {
			s.askToStop(ctx, f, fmt.Sprintf("the budget of %s is used up", g.Owner))
		}
	}
	return nil
}

// flightsOf returns the runs of an owner that were not asked yet.
func (s *Scheduler) flightsOf(o queue.Owner) (list []*flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.live {
		mine := f.entry.Spec.Tenant == o.Tenant && (o.Agent == "" || f.entry.Spec.Agent == o.Agent)
		if mine && !f.preempted && !f.settled && f.running {
			list = append(list, f)
		}
	}
	return list
}
