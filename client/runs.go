package client

import (
	"context"
	"net/url"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
)

// Run is the body of POST /v1/runs: jobs that run to their end, as `scheduler run`
// has it. Source and Digest say which run it is.
type Run struct {
	Submission
	// Env holds the values of the variables that the jobs name in their env, as who
	// submits them has them. They are kept in memory only.
	Env map[string]string `json:"env,omitempty"`
	// Fresh cancels what an unfinished run of the same source has left.
	Fresh bool `json:"fresh,omitempty"`
}

// ContinueRun is the body of POST /v1/runs/{batch}/continue.
type ContinueRun struct {
	Env map[string]string `json:"env,omitempty"` // as Run.Env
}

// StopRun is the body of POST /v1/runs/{batch}/stop, and the answer.
type StopRun struct {
	Now bool `json:"now,omitempty"` // skip the gentle stages
}

// ClosedRun is the answer to POST /v1/runs/{batch}/close.
type ClosedRun struct {
	Batch job.BatchID `json:"batch"`
}

// OpenRun hands a run to the scheduler, or goes on with it. When it returns nil the
// jobs are durable.
func (c *Client) OpenRun(ctx context.Context, in Run) (scheduler.OpenedRun, error) {
	var out scheduler.OpenedRun
	err := c.post(ctx, "/v1/runs", in, &out)
	return out, err
}

// ContinueRun lets a run go on that was stopped, or that waits for its variables.
func (c *Client) ContinueRun(ctx context.Context, id job.BatchID, in ContinueRun) (scheduler.OpenedRun, error) {
	var out scheduler.OpenedRun
	err := c.post(ctx, runPath(id, "continue"), in, &out)
	return out, err
}

// StopRun stops what runs of a run, with now at once. It goes on when it is opened
// or continued.
func (c *Client) StopRun(ctx context.Context, id job.BatchID, now bool) error {
	return c.post(ctx, runPath(id, "stop"), StopRun{Now: now}, nil)
}

// CloseRun says that the summary of a run was given.
func (c *Client) CloseRun(ctx context.Context, id job.BatchID) error {
	return c.post(ctx, runPath(id, "close"), nil, nil)
}

func runPath(id job.BatchID, what string) string {
	return "/v1/runs/" + url.PathEscape(string(id)) + "/" + what
}
