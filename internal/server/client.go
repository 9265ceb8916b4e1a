package server

import (
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
	err := c.do(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(ref)+"/cancel", &j)
	return j, err
}

// Job returns the job that ref names.
func (c *Client) Job(ctx context.Context, ref string) (Job, error) {
	var j Job
	err := c.do(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(ref), &j)
	return j, err
}

func (c *Client) do(ctx context.Context, method, path string, result any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://scheduler"+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return ErrNotRunning
	}
	if err != nil {
		return fmt.Errorf("ask the scheduler: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the scheduler's answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		var p Problem
		if json.Unmarshal(body, &p) != nil || p.Detail == "" {
			p = Problem{Status: resp.StatusCode, Detail: fmt.Sprintf("the scheduler answered %s", resp.Status)}
		}
		return &p
	}
	return json.Unmarshal(body, result)
}
