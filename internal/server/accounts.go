package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (s *Server) accountRoutes() {
	get(s, route{id: "get-usage", method: "GET", path: "/v1/usage", role: read, tag: "accounts", about: "Tell what was used: tokens, cost and time."}, s.usage)
	get(s, route{id: "list-grants", method: "GET", path: "/v1/grants", role: read, tag: "accounts", about: "List what owners may use."}, s.grants)
	post(s, route{id: "set-grant", method: "PUT", path: "/v1/grants", role: operate, tag: "accounts",
		about: "Replace the grant of an owner.\nOne that bounds nothing removes it."}, s.setGrant)
}

func (s *Server) ledger() (queue.Ledger, error) {
	if l, ok := s.opt.Store.(queue.Ledger); ok {
		return l, nil
	}
	return nil, fmt.Errorf("keep accounts: %w", errUnsupported)
}

type usageQuery struct {
	By     []queue.Dimension `query:"by,explode" doc:"what is kept apart: tenant, agent, worker, model, day; none: nothing"`
	Since  time.Time         `query:"since" doc:"from then on, rounded down to 15 minutes"`
	Until  time.Time         `query:"until" doc:"before then, rounded down to 15 minutes"`
	Tenant job.Tenant        `query:"tenant" doc:"of this tenant"`
	Agent  job.AgentID       `query:"agent" doc:"of this agent"`
	Worker job.WorkerKind    `query:"worker" doc:"by this kind of worker"`
	Model  string            `query:"model" doc:"by this model"`
	Zone   string            `query:"zone" doc:"where a day begins, e.g. Europe/Berlin; absent: UTC"`
}

func (s *Server) usage(ctx context.Context, q *usageQuery) (client.Usage, error) {
	l, err := s.ledger()
	if err != nil {
		return client.Usage{}, err
	}
	bad := &invalid{}
	f := queue.AccountFilter{By: q.By, Since: q.Since, Until: q.Until, Tenant: q.Tenant, Agent: q.Agent, Worker: q.Worker, Model: q.Model}
	for _, by := range q.By {
		checkOneOf(bad, "query.by", by, queue.Dimensions())
	}
	if q.Zone != "" {
		if f.Zone, err = time.LoadLocation(q.Zone); err != nil {
			bad.add("query.zone", "is %q, want a name such as Europe/Berlin", q.Zone)
		}
	}
	if err := bad.or(); err != nil {
		return client.Usage{}, err
	}
	return UsageOf(ctx, l, f)
}

// checkOneOf says that a value is not in the list, if it is not.
func checkOneOf[T ~string](bad *invalid, location string, value T, list []T) {
	if !slices.Contains(list, value) {
		bad.add(location, "%q is unknown, want one of %v", value, list)
	}
}

// UsageOf returns what f selects, and the sum of it.
func UsageOf(ctx context.Context, l queue.Ledger, f queue.AccountFilter) (client.Usage, error) {
	accounts, err := l.Accounts(ctx, f)
	if err != nil {
		return client.Usage{}, err
	}
	f.By = nil
	total, err := l.Accounts(ctx, f)
	if err != nil {
		return client.Usage{}, err
	}
	return client.Usage{Accounts: some(accounts), Total: total[0]}, nil
}

func (s *Server) grants(ctx context.Context, _ *struct{}) (client.Grants, error) {
	l, err := s.ledger()
	if err != nil {
		return client.Grants{}, err
	}
	list, err := l.Grants(ctx)
	return client.Grants{Grants: some(list)}, err
}

func (s *Server) setGrant(ctx context.Context, _ *struct{}, g *queue.Grant) (queue.Grant, error) {
	if _, err := s.ledger(); err != nil {
		return *g, err
	}
	if err := g.Validate(); err != nil {
		return *g, badField("body", "%v", err)
	}
	if err := s.opt.Store.Apply(ctx, queue.SetGrant{Grant: *g}); err != nil {
		return *g, err
	}
	s.opt.Sched.Wake()
	return *g, nil
}
