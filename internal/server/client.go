package server

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

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
)

// ErrNotRunning: no scheduler listens on the socket.
var ErrNotRunning = errors.New("no scheduler is running on this state directory")

// Client speaks to a running scheduler.
type Client struct{ http *http.Client }

// NewClient returns a client for the scheduler whose socket is at path.
func NewClient(path string) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, path) },
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
