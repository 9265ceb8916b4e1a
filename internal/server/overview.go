package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// overview answers how everything stands. Its functions are those of Options.
type overview struct {
	entries   entries
	sched     *scheduler.Scheduler
	version   string
	workers   func(context.Context) []api.Worker
	budgets   func(context.Context) []api.Budget
	maxAtOnce func() int
	made      cached[api.Overview]
}

func (o *overview) routes(r *router) {
	get(r, route{id: "get-overview", method: "GET", path: "/v1/overview", role: read, tag: "overview",
		about: "Return an overview of the scheduler.\nIt is computed at most every 2 s, for all clients."}, o.get)
	get(r, route{id: "get-status", method: "GET", path: "/v1/status", role: read, tag: "overview", about: "Return the status of the scheduler and its cores."}, o.status)
	get(r, route{id: "list-tenants", method: "GET", path: "/v1/tenants", role: read, tag: "overview",
		about: "List the tenants with their use, grants and shares.\nThe figures are those of the overview."}, o.tenants)
	get(r, route{id: "list-workers", method: "GET", path: "/v1/workers", role: read, tag: "overview", about: "List the kinds of worker with their state."}, o.listWorkers)
	get(r, route{id: "get-timeline", method: "GET", path: "/v1/timeline", role: read, answered: fromStore, tag: "overview",
		about: "List the attempts that ran within a span of time, in the order of their beginning.\nIf there are more than limit, the latest are returned."}, o.timeline)
}

func (o *overview) status(_ context.Context, _ *struct{}) (api.Status, error) {
	st := o.sched.Status()
	return statusOf(&st), nil
}

func (o *overview) get(ctx context.Context, _ *struct{}) (api.Overview, error) {
	return o.made.get(ctx, o.make)
}

func (o *overview) tenants(ctx context.Context, _ *struct{}) (api.Tenants, error) {
	all, err := o.made.get(ctx, o.make)
	return api.Tenants{Tenants: all.Tenants}, err
}

func (o *overview) listWorkers(ctx context.Context, _ *struct{}) (api.Workers, error) {
	if o.workers == nil {
		return api.Workers{}, fmt.Errorf("workers: %w", errNoSuch)
	}
	list := some(o.workers(ctx))
	for i := range list {
		list[i].Circuits, list[i].Isolations = some(list[i].Circuits), some(list[i].Isolations)
	}
	return api.Workers{Workers: list}, nil
}

type timelineQuery struct {
	Since time.Time `query:"since" doc:"the beginning; absent: 3 hours before until"`
	Until time.Time `query:"until" doc:"the end; absent: now"`
	Limit int       `query:"limit" minimum:"1" maximum:"10000" default:"2000" doc:"the most to return"`
}

// timelineSpan is the span that a timeline has if none is given.
const timelineSpan = 3 * time.Hour

func (o *overview) timeline(ctx context.Context, q *timelineQuery) (api.Timeline, error) {
	out := api.Timeline{Since: q.Since.UTC(), Until: q.Until.UTC()}
	if q.Until.IsZero() {
		out.Until = time.Now().UTC().Round(0)
	}
	if q.Since.IsZero() {
		out.Since = out.Until.Add(-timelineSpan)
	}
	if !out.Since.Before(out.Until) {
		return out, badField("query.since", "%s is not before until, %s", out.Since.Format(time.RFC3339), out.Until.Format(time.RFC3339))
	}
	runs, err := o.entries.store.Runs(ctx, out.Since, out.Until, q.Limit+1)
	if err != nil {
		return out, err
	}
	out.More = len(runs) > q.Limit
	out.Attempts = each(runs[:min(len(runs), q.Limit)], func(r *queue.Running) api.Running { return api.Running(*r) })
	slices.Reverse(out.Attempts)
	return out, nil
}

// What an overview looks at.
const (
	throughputSpan = time.Hour
	throughputStep = 5 * time.Minute
	maxWaiting     = 1000 // queued jobs
)

// make puts an overview together. Its lists are never nil.
func (o *overview) make(ctx context.Context) (api.Overview, error) {
	now := time.Now().UTC().Round(0)
	state := o.sched.Status()
	st := statusOf(&state)
	out := api.Overview{
		At: now, Version: o.version, Started: st.Started, Stopping: st.Stopping, Running: st.Running,
		Cores: st.Cores, Circuits: st.Circuits, Isolations: st.Isolations, Policy: st.Policy,
		Alerts: alertsOf(&st, o.sched.Isolations.Escalations(), now), Budgets: []api.Budget{},
	}
	if o.maxAtOnce != nil {
		out.MaxAtOnce = o.maxAtOnce()
	}
	if o.budgets != nil {
		out.Budgets = some(o.budgets(ctx))
	}
	census, err := o.entries.store.Census(ctx)
	if err != nil {
		return out, err
	}
	out.Census = censusOf(&census)
	steps, err := o.entries.store.Throughput(ctx, now.Add(-throughputSpan), now, throughputStep)
	if err != nil {
		return out, err
	}
	out.Throughput = each(steps, func(t *queue.Throughput) api.Throughput { return api.Throughput(*t) })
	if out.Waiting, err = o.waitingOf(ctx); err != nil {
		return out, err
	}
	t := tenantTable{}
	for _, c := range out.Census.Tenants {
		row := t.row(c.Tenant)
		row.Queued, row.Running, row.Oldest = c.Queued, c.Dispatched, c.Oldest
	}
	for i := range st.Shares {
		t.row(st.Shares[i].Tenant).Share = &st.Shares[i]
	}
	if out.Today, err = o.accounts(ctx, t, now); err != nil {
		return out, err
	}
	out.Tenants = t.list()
	return out, nil
}

// waitingOf counts what queued jobs wait for, over the first of them.
func (o *overview) waitingOf(ctx context.Context) ([]api.Waiting, error) {
	entries, _, _, err := o.entries.store.Page(ctx, queue.Filter{States: []job.EntryState{job.Queued}, Limit: maxWaiting}, "")
	if err != nil {
		return nil, err
	}
	counts := map[job.Waiting]int{}
	for _, e := range o.entries.list(ctx, entries) {
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
	case job.WaitTurn, job.WaitTime, job.WaitDependency, job.WaitParts, job.WaitTeam, job.WaitKey, job.WaitApproval, job.WaitWords, job.WaitPerson, job.WaitRetry, job.WaitPermit:
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
func (o *overview) accounts(ctx context.Context, t tenantTable, now time.Time) (api.Account, error) {
	used, err := UsageOf(ctx, o.entries.store, queue.AccountFilter{By: []queue.Dimension{queue.ByTenant}, Since: now.Truncate(24 * time.Hour)})
	if err != nil {
		return api.Account{}, err
	}
	for i := range used.Accounts {
		t.row(used.Accounts[i].Tenant).Today = used.Accounts[i]
	}
	grants, err := o.entries.store.Grants(ctx)
	for i := range grants {
		if grants[i].Agent == "" {
			g := GrantOf(&grants[i])
			t.row(g.Tenant).Grant = &g
		}
	}
	if err != nil {
		return api.Account{}, err
	}
	balances, err := o.entries.store.Balances(ctx)
	for i := range balances {
		b := balanceOf(&balances[i])
		t.row(b.Tenant).Balance = &b
	}
	return used.Total, err
}
