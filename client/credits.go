package client

import (
	"context"
	"net/url"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// Credits returns what is left of tenants' credits, and what runs take.
func (c *Client) Credits(ctx context.Context) (api.Balances, error) {
	var out api.Balances
	err := c.get(ctx, "/v1/credits", nil, &out)
	return out, err
}

// CreditHistory returns what added to a tenant's credits and took from them, the newest
// first, at most limit (0: 100) of those before the entry with the id before; "" begins.
func (c *Client) CreditHistory(ctx context.Context, t job.Tenant, before string, limit int) (api.Credits, error) {
	q := query{}.add("tenant", string(t)).add("before", before).number("limit", int64(limit))
	var out api.Credits
	err := c.get(ctx, "/v1/credits/history", url.Values(q), &out)
	return out, err
}

// TopUp adds credits to a tenant's balance and returns it. With a key (WithKey) it can be
// sent again: it counts once.
func (c *Client) TopUp(ctx context.Context, in api.TopUp, options ...SubmitOption) (api.Balance, error) {
	var out api.Balance
	err := c.post(ctx, "/v1/credits", in, &out, options...)
	return out, err
}

// DropBalance ends a tenant's balance and returns it as it was.
func (c *Client) DropBalance(ctx context.Context, in api.DropBalance) (api.Balance, error) {
	var out api.Balance
	err := c.post(ctx, "/v1/credits/drop", in, &out)
	return out, err
}
