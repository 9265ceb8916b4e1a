package client

import (
	"context"
	"net/url"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// JobGrants returns what people have allowed the runs of the job that ref names, and what
// these were refused.
func (c *Client) JobGrants(ctx context.Context, ref string) (api.JobGrants, error) {
	var out api.JobGrants
	err := c.get(ctx, jobPath(ref, "/grants"), nil, &out)
	return out, err
}

// AllowRun allows the runs of the job that ref names, or of its tenant, to reach a host.
func (c *Client) AllowRun(ctx context.Context, ref string, in api.AllowRun) (api.AllowedRun, error) {
	var out api.AllowedRun
	err := c.post(ctx, jobPath(ref, "/grants"), in, &out)
	return out, err
}

// RunGrants returns what people have allowed the runs of a tenant; of all if t is empty.
func (c *Client) RunGrants(ctx context.Context, t job.Tenant) (api.RunGrants, error) {
	var out api.RunGrants
	err := c.get(ctx, "/v1/run-grants", url.Values(query{}.add("tenant", string(t))), &out)
	return out, err
}

// RevokeRun ends what people have allowed runs, and returns it.
func (c *Client) RevokeRun(ctx context.Context, in api.RevokeRun) (api.RunGrant, error) {
	var out api.RunGrant
	err := c.post(ctx, "/v1/run-grants/revoke", in, &out)
	return out, err
}
