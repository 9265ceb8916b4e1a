package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/socket"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
)

// ErrNotRunning: no scheduler listens on the socket.
var ErrNotRunning = errors.New("no scheduler is running on this state directory")

// Client speaks to a running scheduler.
type Client struct{ http *http.Client }

// New returns a client for the scheduler whose socket is at path.
func New(path string) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return socket.Dial(ctx, path) },
	}}}
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Cancel cancels the job that ref names and returns it as it is then. The
// error is ErrNotRunning or a *Problem.
func (c *Client) Cancel(ctx context.Context, ref string) (Job, error) {
	var j Job
	err := c.do(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(ref)+"/cancel", nil, &j)
	return j, err
}

// Job returns the job that ref names.
func (c *Client) Job(ctx context.Context, ref string) (Job, error) {
	var j Job
	err := c.do(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(ref), nil, &j)
	return j, err
}

// Status returns how the scheduler and its cores fare.
func (c *Client) Status(ctx context.Context) (scheduler.Status, error) {
	var st scheduler.Status
	err := c.do(ctx, http.MethodGet, "/v1/status", nil, &st)
	return st, err
}

// Resume lifts the isolation of a scope and returns what it was. The error is
// ErrNotRunning or a *Problem.
func (c *Client) Resume(ctx context.Context, scope string) (isolation.Isolation, error) {
	var i isolation.Isolation
	err := c.do(ctx, http.MethodPost, "/v1/resume", Resume{Scope: scope}, &i)
	return i, err
}

// RestartCores replaces cores, and returns how the scheduler fares when their
// successors are up. Until then it waits; a wait that is given up does not
// undo what has begun.
func (c *Client) RestartCores(ctx context.Context, which RestartCores) (scheduler.Status, error) {
	var st scheduler.Status
	err := c.do(ctx, http.MethodPost, "/v1/cores/restart", which, &st)
	if errors.Is(err, io.EOF) {
		err = errors.New("the scheduler ended before the successor was up")
	}
	return st, err
}

// do sends a request, with body as JSON if it is not nil, and decodes the answer.
func (c *Client) do(ctx context.Context, method, path string, body, result any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://scheduler"+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return ErrNotRunning
	}
	if err != nil {
		return fmt.Errorf("ask the scheduler: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the scheduler's answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		var p Problem
		if json.Unmarshal(answer, &p) != nil || p.Detail == "" {
			p = Problem{Status: resp.StatusCode, Detail: fmt.Sprintf("the scheduler answered %s", resp.Status)}
		}
		return &p
	}
	return json.Unmarshal(answer, result)
}

// Submit gives jobs to the running scheduler. When it returns nil they are
// durable. The error is ErrNotRunning or a *Problem.
func (c *Client) Submit(ctx context.Context, in Submission) (Jobs, error) {
	var out Jobs
	err := c.do(ctx, http.MethodPost, "/v1/jobs", in, &out)
	return out, err
}

// Checkpoint asks the job that ref names to stop at the boundary of its next step.
// The error is ErrNotRunning or a *Problem.
func (c *Client) Checkpoint(ctx context.Context, ref string, in Checkpoint) (Job, error) {
	var j Job
	err := c.do(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(ref)+"/checkpoint", in, &j)
	return j, err
}

// Requeue lets the scheduler do dead letters again. When it returns nil the new
// jobs are durable. The error is ErrNotRunning or a *Problem.
func (c *Client) Requeue(ctx context.Context, in Requeue) (Requeued, error) {
	var out Requeued
	err := c.do(ctx, http.MethodPost, "/v1/dead-letters/requeue", in, &out)
	return out, err
}

// Drop says that nothing more is to be done about dead letters, and returns them
// as they are then. The error is ErrNotRunning or a *Problem.
func (c *Client) Drop(ctx context.Context, ids []job.ID) (Jobs, error) {
	var out Jobs
	err := c.do(ctx, http.MethodPost, "/v1/dead-letters/drop", Drop{IDs: ids}, &out)
	return out, err
}

// Evaluate says what somebody thinks of a job that has ended. The error is
// ErrNotRunning or a *Problem.
func (c *Client) Evaluate(ctx context.Context, id job.ID, g eval.Given) (Evaluations, error) {
	var out Evaluations
	err := c.do(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(string(id))+"/evaluations", g, &out)
	return out, err
}

// Replay has a stage of the pipeline that ref names do its events again. The error
// is ErrNotRunning or a *Problem.
func (c *Client) Replay(ctx context.Context, ref string, r scheduler.Rewind) (Rewound, error) {
	var out Rewound
	err := c.do(ctx, http.MethodPost, "/v1/pipelines/"+url.PathEscape(ref)+"/replay", r, &out)
	return out, err
}

// SetGrant replaces the grant of an owner. The error is ErrNotRunning or a *Problem.
func (c *Client) SetGrant(ctx context.Context, g queue.Grant) error {
	return c.do(ctx, http.MethodPut, "/v1/grants", g, new(queue.Grant))
}

// Triggers returns how the triggers of the running server are doing. The error
// is ErrNotRunning or a *Problem.
func (c *Client) Triggers(ctx context.Context) ([]trigger.Status, error) {
	var out Triggers
	err := c.do(ctx, http.MethodGet, "/v1/triggers", nil, &out)
	return out.Triggers, err
}

// Call makes a call of kernel.sched on the running scheduler and decodes its
// result. The error is ErrNotRunning, or a *sched.Error with its code.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  *sched.Error    `json:"error"`
	}
	err = c.do(ctx, http.MethodPost, "/v1/rpc", map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": json.RawMessage(text)}, &answer)
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

// Decide answers what the job that ref names waits for, and returns it as it is
// then. The error is ErrNotRunning or a *Problem.
func (c *Client) Decide(ctx context.Context, ref string, a scheduler.Answer) (Job, error) {
	var j Job
	err := c.do(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(ref)+"/answer", a, &j)
	return j, err
}
