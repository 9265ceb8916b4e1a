package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/queue"
)

// Status returns how the scheduler and its cores fare.
func (c *Client) Status(ctx context.Context) (scheduler.Status, error) {
	var st scheduler.Status
	err := c.get(ctx, "/v1/status", nil, &st)
	return st, err
}

// Overview returns all that somebody sees at a glance.
func (c *Client) Overview(ctx context.Context) (Overview, error) {
	var out Overview
	err := c.get(ctx, "/v1/overview", nil, &out)
	return out, err
}

// Tenants returns how each tenant stands.
func (c *Client) Tenants(ctx context.Context) ([]Tenant, error) {
	var out Tenants
	err := c.get(ctx, "/v1/tenants", nil, &out)
	return out.Tenants, err
}

// Workers returns how each kind of worker stands.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	var out Workers
	err := c.get(ctx, "/v1/workers", nil, &out)
	return out.Workers, err
}

// Timeline returns the attempts that ran within a span, at most limit, 1 to 10,000.
// A zero until is now, a zero since 3 hours before; a limit of 0 is 2,000.
func (c *Client) Timeline(ctx context.Context, since, until time.Time, limit int) (Timeline, error) {
	var out Timeline
	err := c.get(ctx, "/v1/timeline", url.Values(query{}.time("since", since).time("until", until).number("limit", int64(limit))), &out)
	return out, err
}

// Workflows returns the newest batches whose jobs hang together, at most limit, 1
// to 200; 0 is 50.
func (c *Client) Workflows(ctx context.Context, limit int) ([]Workflow, error) {
	var out Workflows
	err := c.get(ctx, "/v1/workflows", url.Values(query{}.number("limit", int64(limit))), &out)
	return out.Workflows, err
}

// Workflow returns the jobs of a batch as a graph.
func (c *Client) Workflow(ctx context.Context, batch string) (Graph, error) {
	var out Graph
	err := c.get(ctx, "/v1/workflows/"+url.PathEscape(batch), nil, &out)
	return out, err
}

// Pipelines returns the pipelines of that name, all with "".
func (c *Client) Pipelines(ctx context.Context, name string) ([]scheduler.Pipeline, error) {
	var out Pipelines
	err := c.get(ctx, "/v1/pipelines", url.Values(query{}.add("name", name)), &out)
	return out.Pipelines, err
}

// PipelineEvents returns the events of a pipeline after a sequence number, at most
// limit, 1 to 1000.
func (c *Client) PipelineEvents(ctx context.Context, ref string, after int64, limit int) (PipelineEvents, error) {
	var out PipelineEvents
	err := c.get(ctx, "/v1/pipelines/"+url.PathEscape(ref)+"/events", url.Values(query{}.number("after", after).number("limit", int64(limit))), &out)
	return out, err
}

// Agents returns the agents that were declared.
func (c *Client) Agents(ctx context.Context) ([]Agent, error) {
	var out Agents
	err := c.get(ctx, "/v1/agents", nil, &out)
	return out.Agents, err
}

// Reputations returns what f selects, the best first.
func (c *Client) Reputations(ctx context.Context, f eval.Filter) ([]eval.Reputation, error) {
	var out Reputations
	err := c.get(ctx, "/v1/reputations", url.Values(query{}.add("subject", f.Name).add("kind", string(f.Kind)).add("domain", f.Domain)), &out)
	return out.Reputations, err
}

// Similar returns the subjects whose work is like that of one, the nearest first.
func (c *Client) Similar(ctx context.Context, q eval.Like) (SimilarSubjects, error) {
	values := query{}.add("subject", q.Name).add("kind", string(q.Kind)).add("domain", q.Domain).number("limit", int64(q.Limit))
	if q.MaxDistance > 0 {
		values.add("max_distance", strconv.FormatFloat(q.MaxDistance, 'g', -1, 64))
	}
	var out SimilarSubjects
	err := c.get(ctx, "/v1/reputations/similar", url.Values(values), &out)
	return out, err
}

// History returns how a reputation has moved. A domain of "" is the default one.
func (c *Client) History(ctx context.Context, s eval.Subject, domain string) ([]HistoryPoint, error) {
	var out History
	err := c.get(ctx, "/v1/reputations/history", url.Values(query{}.add("subject", s.Name).add("kind", string(s.Kind)).add("domain", domain)), &out)
	return out.Points, err
}

// Usage returns what was used. Of the filter's zone the name counts.
func (c *Client) Usage(ctx context.Context, f queue.AccountFilter) (Usage, error) {
	q := query{}.time("since", f.Since).time("until", f.Until).add("tenant", string(f.Tenant)).add("agent", string(f.Agent)).
		add("worker", string(f.Worker)).add("model", f.Model)
	for _, by := range f.By {
		q.add("by", string(by))
	}
	if f.Zone != nil {
		q.add("zone", f.Zone.String())
	}
	var out Usage
	err := c.get(ctx, "/v1/usage", url.Values(q), &out)
	return out, err
}

// Grants returns what owners may use.
func (c *Client) Grants(ctx context.Context) ([]queue.Grant, error) {
	var out Grants
	err := c.get(ctx, "/v1/grants", nil, &out)
	return out.Grants, err
}

// Triggers returns how the triggers of the running server are doing.
func (c *Client) Triggers(ctx context.Context) ([]trigger.Status, error) {
	var out Triggers
	err := c.get(ctx, "/v1/triggers", nil, &out)
	return out.Triggers, err
}

// Me is who asks: the answer to GET /v1/me.
type Me struct {
	Name string `json:"name"`
	Role string `json:"role"` // read, submit or operate
	Door string `json:"door"` // socket, tcp or browser
}

// Me returns who the scheduler takes this client for.
func (c *Client) Me(ctx context.Context) (Me, error) {
	var out Me
	err := c.get(ctx, "/v1/me", nil, &out)
	return out, err
}

// Ready returns whether the scheduler takes jobs, and why not.
func (c *Client) Ready(ctx context.Context) (Health, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/readyz", nil)
	if err != nil {
		return Health{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Health{}, unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return Health{}, problemOf(resp)
	}
	var out Health
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("read the scheduler's answer: %w", err)
	}
	return out, nil
}
