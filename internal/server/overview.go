package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// What an overview looks at.
const (
	throughputSpan = time.Hour
	throughputStep = 5 * time.Minute
	maxWaiting     = 1000 // queued jobs
)

// makeOverview puts an overview together. Its lists are never nil.
func (s *Server) makeOverview(ctx context.Context) (client.Overview, error) {
	survey, err := s.surveyor()
	if err != nil {
		return client.Overview{}, err
	}
	now := time.Now().UTC().Round(0)
	st, err := s.status(ctx, nil)
	if err != nil {
		return client.Overview{}, err
	}
	o := client.Overview{
		At: now, Version: s.opt.Version, Started: st.Started, Stopping: st.Stopping, Running: st.Running,
		Cores: st.Cores, Circuits: st.Circuits, Isolations: st.Isolations, Policy: st.Policy,
		Alerts: alertsOf(&st, s.opt.Sched.Escalations(), now), Budgets: []client.Budget{},
	}
	if s.opt.MaxAtOnce != nil {
		o.MaxAtOnce = s.opt.MaxAtOnce()
	}
	if s.opt.Budgets != nil {
		o.Budgets = some(s.opt.Budgets(ctx))
	}
	if o.Census, err = survey.Census(ctx); err != nil {
		return o, err
	}
	o.Census.Tenants = some(o.Census.Tenants)
	o.Throughput, err = survey.Throughput(ctx, now.Add(-throughputSpan), now, throughputStep)
	if o.Throughput = some(o.Throughput); err != nil {
		return o, err
	}
	if o.Waiting, err = s.waitingOf(ctx, survey, len(st.Isolations) > 0, now); err != nil {
		return o, err
	}
	t := tenantTable{}
	for _, c := range o.Census.Tenants {
		row := t.row(c.Tenant)
		row.Queued, row.Running, row.Oldest = c.Queued, c.Dispatched, c.Oldest
	}
	for i := range st.Shares {
		t.row(st.Shares[i].Tenant).Share = &st.Shares[i]
	}
	if o.Today, err = s.accounts(ctx, t, now); err != nil {
		return o, err
	}
	o.Tenants = t.list()
	return o, nil
}

// waitingOf counts why queued jobs wait, over the first of them; isolated says that
// something is out of use.
func (s *Server) waitingOf(ctx context.Context, survey queue.Surveyor, isolated bool, now time.Time) ([]client.Waiting, error) {
	entries, _, _, err := survey.Page(ctx, queue.Filter{States: []job.EntryState{job.Queued}, Limit: maxWaiting}, "")
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for i := range entries {
		counts[s.waits(&entries[i], isolated, now)]++
	}
	list := []client.Waiting{}
	for why, n := range counts {
		list = append(list, client.Waiting{Why: why, Jobs: n})
	}
	slices.SortFunc(list, func(a, b client.Waiting) int { return cmp.Or(b.Jobs-a.Jobs, cmp.Compare(a.Why, b.Why)) })
	return list, nil
}

// waits says why a queued entry waits, in words that others share.
func (s *Server) waits(e *queue.Entry, isolated bool, now time.Time) string {
	if isolated && e.Held == "" && len(e.Spec.Choices()) > e.Choice {
		if i, blocked := s.opt.Sched.Blocking(e); blocked {
			return fmt.Sprintf("%s is out of use: %s", i.Scope, i.Message)
		}
	}
	switch {
	case e.Held == job.HeldForApproval:
		return "waits for a person"
	case e.Held == job.HeldForParts:
		return "waits for its parts"
	case e.Held == job.HeldForTeam:
		return "waits for its team"
	case e.Held == job.HeldForNeeds:
		return "waits for other jobs"
	case e.CoalescedWith != "":
		return "waits for the result of another job of the same key"
	case e.WaitsFor != "":
		return "waits for another job of the same key"
	case e.Waiting != "":
		return e.Waiting
	case e.RunnableAt.After(now):
		return "is not to run before its time"
	}
	return "waits for its turn"
}

// tenantTable is what is known of each tenant.
type tenantTable map[job.Tenant]*client.Tenant

func (t tenantTable) row(name job.Tenant) *client.Tenant {
	if t[name] == nil {
		t[name] = &client.Tenant{Tenant: name}
	}
	return t[name]
}

// list returns the tenants by name.
func (t tenantTable) list() []client.Tenant {
	list := []client.Tenant{}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		list = append(list, *t[name])
	}
	return list
}

// accounts adds what tenants have used since midnight and what they may use, where
// the store keeps accounts, and returns what all have used.
func (s *Server) accounts(ctx context.Context, t tenantTable, now time.Time) (queue.Account, error) {
	ledger, err := s.ledger()
	if err != nil {
		return queue.Account{}, nil
	}
	used, err := UsageOf(ctx, ledger, queue.AccountFilter{By: []queue.Dimension{queue.ByTenant}, Since: now.Truncate(24 * time.Hour)})
	if err != nil {
		return queue.Account{}, err
	}
	for i := range used.Accounts {
		t.row(used.Accounts[i].Tenant).Today = used.Accounts[i]
	}
	grants, err := ledger.Grants(ctx)
	for i := range grants {
		if grants[i].Agent == "" {
			t.row(grants[i].Tenant).Grant = &grants[i]
		}
	}
	return used.Total, err
}
