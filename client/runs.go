package client

import (
	"context"
	"net/url"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// Runs returns the runs of `scheduler run` that are not closed, the newest first.
func (c *Client) Runs(ctx context.Context) ([]api.RunStatus, error) {
	var out api.Runs
	err := c.get(ctx, "/v1/runs", nil, &out)
	return out.Runs, err
}

// OpenRun hands a run to the scheduler, or goes on with it. When it returns nil the
// jobs are durable.
func (c *Client) OpenRun(ctx context.Context, in api.Run) (api.OpenedRun, error) {
	var out api.OpenedRun
	err := c.post(ctx, "/v1/runs", in, &out)
	return out, err
}

// ContinueRun lets a run go on that was stopped, or that waits for its variables.
func (c *Client) ContinueRun(ctx context.Context, id job.BatchID, in api.ContinueRun) (api.OpenedRun, error) {
	var out api.OpenedRun
	err := c.post(ctx, runPath(id, "continue"), in, &out)
	return out, err
}

// StopRun stops what runs of a run, with now at once. It goes on when it is opened
// or continued.
func (c *Client) StopRun(ctx context.Context, id job.BatchID, now bool) error {
	return c.post(ctx, runPath(id, "stop"), api.StopRun{Now: now}, nil)
}

// CloseRun says that the summary of a run was given.
func (c *Client) CloseRun(ctx context.Context, id job.BatchID) error {
	return c.post(ctx, runPath(id, "close"), nil, nil)
}

func runPath(id job.BatchID, what string) string {
	return "/v1/runs/" + url.PathEscape(string(id)) + "/" + what
}
