package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/agentsched/agentsched/api"
)

// Pause lets nothing of a scope begin, and returns the isolation.
func (c *Client) Pause(ctx context.Context, in api.Pause) (api.Isolation, error) {
	var i api.Isolation
	err := c.post(ctx, "/v1/pause", in, &i)
	return i, err
}

// Resume lifts the isolation of a scope and returns what it was.
func (c *Client) Resume(ctx context.Context, scope string) (api.Isolation, error) {
	var i api.Isolation
	err := c.post(ctx, "/v1/resume", api.Resume{Scope: scope}, &i)
	return i, err
}

// RestartCores replaces cores, and returns how the scheduler fares when their
// successors are up. Until then it waits; a wait that is given up does not
// undo what has begun.
func (c *Client) RestartCores(ctx context.Context, which api.RestartCores) (api.Status, error) {
	var st api.Status
	err := c.post(ctx, "/v1/cores/restart", which, &st)
	if errors.Is(err, io.EOF) {
		err = errors.New("the scheduler ended before the successor was up")
	}
	return st, err
}

// Reload puts the changed configuration in force and says what has changed.
func (c *Client) Reload(ctx context.Context) (string, error) {
	var out api.Reloaded
	err := c.post(ctx, "/v1/reload", nil, &out)
	return out.Text, err
}

// Upgrade hands over to a new program. When it returns nil that has begun.
func (c *Client) Upgrade(ctx context.Context, in api.Upgrade) error {
	return c.post(ctx, "/v1/upgrade", in, nil)
}

// UILink returns a link that opens the dashboard once, for a role; "" is operate.
func (c *Client) UILink(ctx context.Context, role string) (api.UILink, error) {
	var out api.UILink
	err := c.post(ctx, "/v1/ui-links", api.UILink{Role: role}, &out)
	return out, err
}

// SetGrant replaces the grant of an owner.
func (c *Client) SetGrant(ctx context.Context, g api.Grant) error {
	return c.do(ctx, request{method: http.MethodPut, path: "/v1/grants", body: g}, nil)
}

// Replay has a stage of the pipeline that ref names do its events again.
func (c *Client) Replay(ctx context.Context, ref string, r api.Rewind) (api.Rewound, error) {
	var out api.Rewound
	err := c.post(ctx, "/v1/pipelines/"+url.PathEscape(ref)+"/replay", r, &out)
	return out, err
}

// ReplayPipeline gives recorded events of the pipeline that ref names to its stages
// again, in a new run.
func (c *Client) ReplayPipeline(ctx context.Context, ref string, r api.Replay) (api.Replayed, error) {
	var out api.Replayed
	err := c.post(ctx, "/v1/pipelines/"+url.PathEscape(ref)+"/runs", r, &out)
	return out, err
}

// Call makes a call of kernel.sched on the running scheduler and decodes its
// result. The error may be a *api.RPCError with its code, too.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  *api.RPCError   `json:"error"`
	}
	err = c.post(ctx, "/v1/rpc", map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": json.RawMessage(text)}, &answer)
	switch {
	case err != nil:
		return err
	case answer.Error != nil:
		return answer.Error
	case result == nil:
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}
