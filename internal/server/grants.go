package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// grantRoutes answer what people allow runs beside what their jobs say.
func (j jobs) grantRoutes(r *router) {
	get(r, route{id: "list-job-grants", method: "GET", path: "/v1/jobs/{job}/grants", role: read, answered: fromStore, tag: "grants",
		about: "Return what people have allowed the runs of a job, and which hosts these were refused."}, ofJob(j.entries, j.grants))
	post(r, route{id: "allow-run", method: "POST", path: "/v1/jobs/{job}/grants", role: operate, tag: "grants",
		about: "Allow the runs of a job, or of its tenant, to reach a host.\nA run that is under way has it from its next connection on."}, toJob(j.entries, j.allow))
	get(r, route{id: "list-run-grants", method: "GET", path: "/v1/run-grants", role: read, answered: fromStore, tag: "grants",
		about: "List what people have allowed the runs of tenants."}, j.tenantGrants)
	post(r, route{id: "revoke-run-grant", method: "POST", path: "/v1/run-grants/revoke", role: operate, tag: "grants",
		about: "Revoke what people have allowed the runs of a tenant or of a job, and return it.\nConnections that are open go on."}, j.revoke)
}

func (j jobs) grants(ctx context.Context, e *queue.Entry) (api.JobGrants, error) {
	grants, refused, err := j.sched.Grants.Show(ctx, e)
	return api.JobGrants{Grants: some(grants), Refused: some(refused)}, err
}

func (j jobs) allow(ctx context.Context, e *queue.Entry, in *api.AllowRun) (api.AllowedRun, error) {
	bad := &invalid{}
	if err := job.ValidNetworkEntry(in.Entry); err != nil {
		bad.add("body.entry", "%v", err)
	}
	if scopes := api.RunGrantScopes(); in.Scope != "" && !slices.Contains(scopes, in.Scope) {
		bad.add("body.scope", "is %q, want one of %v", in.Scope, scopes)
	}
	if err := bad.or(); err != nil {
		return api.AllowedRun{}, err
	}
	if j.who != nil {
		in.By = cmp.Or(j.who(ctx), in.By)
	}
	return j.sched.Grants.Allow(ctx, e, in)
}

type runGrantsQuery struct {
	Tenant job.Tenant `query:"tenant" doc:"only those of this tenant"`
}

func (j jobs) tenantGrants(ctx context.Context, q *runGrantsQuery) (api.RunGrants, error) {
	grants, err := j.sched.Grants.Tenants(ctx, q.Tenant)
	return api.RunGrants{Grants: some(grants)}, err
}

func (j jobs) revoke(ctx context.Context, _ *struct{}, in *api.RevokeRun) (api.RunGrant, error) {
	if kinds := api.RunGrantKinds(); in.Kind != "" && !slices.Contains(kinds, in.Kind) {
		return api.RunGrant{}, badField("body.kind", "is %q, want one of %v", in.Kind, kinds)
	}
	if (in.Job == "") == (in.Tenant == "") {
		return api.RunGrant{}, badField("body", "want either tenant or job")
	}
	if in.Job == "" {
		return j.sched.Grants.Revoke(ctx, nil, in.Tenant, in.Kind, in.Entry)
	}
	e, err := j.entries.find(ctx, in.Job)
	if err != nil {
		return api.RunGrant{}, fmt.Errorf("job %q: %w", in.Job, err)
	}
	return j.sched.Grants.Revoke(ctx, &e, "", in.Kind, in.Entry)
}
