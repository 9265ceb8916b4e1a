package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// fallbackPolicy is in force until Run has made the one that is asked for.
func fallbackPolicy() policy.Policy {
	p, err := policy.New(policy.Default())
	if err != nil {
		panic(fmt.Sprintf("the default policy: %v", err)) // it has no settings that could be wrong
	}
	return p
}

// usePolicy puts the policy of the tuning in force, with what the ledger knows
// of the time before.
func (s *Scheduler) usePolicy(ctx context.Context) error {
	s.mu.Lock()
	cfg, expect := s.cfg.Policy, s.cfg.Expect
	s.mu.Unlock()
	if cfg.Name == "" {
		cfg = policy.Default()
	}
	make := s.cfg.NewPolicy
	if make == nil {
		make = policy.New
	}
	p, err := make(cfg)
	if err != nil {
		return fmt.Errorf("set up policy %q: %w", cfg.Name, err)
	}
	if cfg.Window > 0 {
		if err := recall(ctx, s.cfg.Store, p, cfg.Window.Std()); err != nil {
			return fmt.Errorf("recall what the tenants have used: %w", err)
		}
	}
	if err := s.Judge.tellReputations(ctx, p); err != nil {
		return err
	}
	s.loop.post(schedule.UsePolicy{Policy: p, Expect: expect})
	return nil
}

// historyParts is how finely a policy is told what was used before a restart.
const historyParts = 12

// recall charges what the tenants have used within the window, the oldest part
// of it first. A part counts as used at its end, so that nothing is forgotten too
// early.
func recall(ctx context.Context, ledger queue.Ledger, p policy.Policy, window time.Duration) error {
	until := now()
	step := max((window / historyParts).Truncate(queue.AccountStep), queue.AccountStep)
	for since := until.Add(-window).Truncate(queue.AccountStep); since.Before(until); since = since.Add(step) {
		end := since.Add(step)
		accounts, err := ledger.Accounts(ctx, queue.AccountFilter{By: []queue.Dimension{queue.ByTenant}, Since: since, Until: end})
		if err != nil {
			return err
		}
		if end.After(until) {
			end = until
		}
		for _, a := range accounts {
			p.Charge(a.Tenant, policy.Demand{Tokens: float64(a.Usage.Tokens()), CostUSD: a.Usage.CostUSD}, int(a.Completed), end)
		}
	}
	return nil
}
