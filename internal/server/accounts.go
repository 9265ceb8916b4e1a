package server

import (
	"context"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// accounts answers what was used, and what owners may use.
type accounts struct {
	store queue.Store
	wake  func() // has the scheduler look again at what may run

	principal func(context.Context) string // Options.Principal
}

func (a accounts) routes(r *router) {
	get(r, route{id: "get-usage", method: "GET", path: "/v1/usage", role: read, answered: fromStore, tag: "accounts", about: "Return what was used: tokens, cost and time."}, a.usage)
	get(r, route{id: "list-grants", method: "GET", path: "/v1/grants", role: read, answered: fromStore, tag: "accounts", about: "List the grants of owners, and how much of them was used."}, a.grants)
	post(r, route{id: "set-grant", method: "PUT", path: "/v1/grants", role: operate, tag: "accounts",
		about: "Replace the grant of an owner.\nA grant without a limit removes it."}, a.setGrant)
	a.creditRoutes(r)
}

type usageQuery struct {
	By     []api.Dimension `query:"by,explode" doc:"one row for each tenant, agent, worker, model or day; absent: one row in all"`
	Since  time.Time       `query:"since" doc:"the beginning, rounded down to 15 minutes"`
	Until  time.Time       `query:"until" doc:"the end, not included, rounded down to 15 minutes"`
	Tenant job.Tenant      `query:"tenant" doc:"only this tenant"`
	Agent  job.AgentID     `query:"agent" doc:"only this agent"`
	Worker job.WorkerKind  `query:"worker" doc:"only this kind of worker"`
	Model  string          `query:"model" doc:"only this model"`
	Zone   string          `query:"zone" doc:"the time zone of days, e.g. Europe/Berlin; absent: UTC"`
}

func (a accounts) usage(ctx context.Context, q *usageQuery) (api.Usage, error) {
	bad := &invalid{}
	f := queue.AccountFilter{Since: q.Since, Until: q.Until, Tenant: q.Tenant, Agent: q.Agent, Worker: q.Worker, Model: q.Model}
	for _, by := range q.By {
		f.By = append(f.By, queue.Dimension(by))
		checkOneOf(bad, "query.by", queue.Dimension(by), queue.Dimensions())
	}
	if q.Zone != "" {
		var err error
		if f.Zone, err = time.LoadLocation(q.Zone); err != nil {
			bad.add("query.zone", "is %q, want a name such as Europe/Berlin", q.Zone)
		}
	}
	if err := bad.or(); err != nil {
		return api.Usage{}, err
	}
	return UsageOf(ctx, a.store, f)
}

// checkOneOf says that a value is not in the list, if it is not.
func checkOneOf[T ~string](bad *invalid, location string, value T, list []T) {
	if !slices.Contains(list, value) {
		bad.add(location, "%q is unknown, want one of %v", value, list)
	}
}

// UsageOf returns what f selects, and the sum of it.
func UsageOf(ctx context.Context, l queue.Ledger, f queue.AccountFilter) (api.Usage, error) {
	accounts, err := l.Accounts(ctx, f)
	if err != nil {
		return api.Usage{}, err
	}
	f.By = nil
	total, err := l.Accounts(ctx, f)
	if err != nil {
		return api.Usage{}, err
	}
	return api.Usage{Accounts: each(accounts, AccountOf), Total: AccountOf(&total[0])}, nil
}

func (a accounts) grants(ctx context.Context, _ *struct{}) (api.Grants, error) {
	out := api.Grants{Grants: []api.GrantUse{}}
	list, err := a.store.Grants(ctx)
	if err != nil {
		return out, err
	}
	for i := range list {
		g := &list[i]
		f := queue.AccountFilter{Tenant: g.Tenant, Agent: g.Agent}
		if g.Window > 0 {
			f.Since = time.Now().Add(-g.Window.Std())
		}
		used, err := a.store.Accounts(ctx, f)
		if err != nil {
			balances, err := a.store.Balances(ctx)
			out.Balances = each(balances, balanceOf)
			return out, err
		}
		out.Grants = append(out.Grants, api.GrantUse{Grant: GrantOf(g), Used: AccountOf(&used[0]), UsedUp: g.UsedUp(&used[0])})
	}
	balances, err := a.store.Balances(ctx)
	out.Balances = each(balances, balanceOf)
	return out, err
}

func (a accounts) setGrant(ctx context.Context, _ *struct{}, g *api.Grant) (api.Grant, error) {
	grant := grantOf(g)
	if err := grant.Validate(); err != nil {
		return *g, badField("body", "%v", err)
	}
	if err := a.store.Apply(ctx, queue.SetGrant{Grant: grant}); err != nil {
		return *g, err
	}
	a.wake()
	return *g, nil
}
