package server

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
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
func (s *Server) makeOverview(ctx context.Context) (api.Overview, error) {
	now := time.Now().UTC().Round(0)
	st, err := s.status(ctx, nil)
	if err != nil {
		return api.Overview{}, err
	}
	o := api.Overview{
		At: now, Version: s.opt.Version, Started: st.Started, Stopping: st.Stopping, Running: st.Running,
		Cores: st.Cores, Circuits: st.Circuits, Isolations: st.Isolations, Policy: st.Policy,
		Alerts: alertsOf(&st, s.opt.Sched.Isolations.Escalations(), now), Budgets: []api.Budget{},
	}
	if s.opt.MaxAtOnce != nil {
		o.MaxAtOnce = s.opt.MaxAtOnce()
	}
	if s.opt.Budgets != nil {
		o.Budgets = some(s.opt.Budgets(ctx))
	}
	census, err := s.opt.Store.Census(ctx)
	if err != nil {
		return o, err
	}
	o.Census = censusOf(&census)
	steps, err := s.opt.Store.Throughput(ctx, now.Add(-throughputSpan), now, throughputStep)
	if err != nil {
		return o, err
	}
	o.Throughput = each(steps, func(t *queue.Throughput) api.Throughput { return api.Throughput(*t) })
	if o.Waiting, err = s.waitingOf(ctx); err != nil {
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

// waitingOf counts what queued jobs wait for, over the first of them.
func (s *Server) waitingOf(ctx context.Context) ([]api.Waiting, error) {
	entries, _, _, err := s.opt.Store.Page(ctx, queue.Filter{States: []job.EntryState{job.Queued}, Limit: maxWaiting}, "")
	if err != nil {
		return nil, err
	}
	counts := map[job.Waiting]int{}
	for _, e := range s.stand(ctx, entries) {
		counts[shared(*e.Status.Waiting)]++
	}
	list := []api.Waiting{}
	for w, n := range counts {
		list = append(list, api.Waiting{Reason: w.Reason, Why: w.String(), Jobs: n})
	}
	slices.SortFunc(list, func(a, b api.Waiting) int { return cmp.Or(b.Jobs-a.Jobs, cmp.Compare(a.Why, b.Why)) })
	return list, nil
}

// shared returns what a job waits for without what is said of it alone.
func shared(w job.Waiting) job.Waiting {
	switch w.Reason {
	case job.WaitTurn, job.WaitTime, job.WaitDependency, job.WaitParts, job.WaitTeam, job.WaitKey, job.WaitApproval, job.WaitRetry, job.WaitPermit:
		w.Text = ""
	}
	return w
}

// tenantTable is what is known of each tenant.
type tenantTable map[job.Tenant]*api.Tenant

func (t tenantTable) row(name job.Tenant) *api.Tenant {
	if t[name] == nil {
		t[name] = &api.Tenant{Tenant: name}
	}
	return t[name]
}

// list returns the tenants by name.
func (t tenantTable) list() []api.Tenant {
	list := []api.Tenant{}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		list = append(list, *t[name])
	}
	return list
}

// accounts adds what tenants have used since midnight and what they may use, and
// returns what all have used.
func (s *Server) accounts(ctx context.Context, t tenantTable, now time.Time) (api.Account, error) {
	used, err := UsageOf(ctx, s.opt.Store, queue.AccountFilter{By: []queue.Dimension{queue.ByTenant}, Since: now.Truncate(24 * time.Hour)})
	if err != nil {
		return api.Account{}, err
	}
	for i := range used.Accounts {
		t.row(used.Accounts[i].Tenant).Today = used.Accounts[i]
	}
	grants, err := s.opt.Store.Grants(ctx)
	for i := range grants {
		if grants[i].Agent == "" {
			g := GrantOf(&grants[i])
			t.row(g.Tenant).Grant = &g
		}
	}
	return used.Total, err
}
