package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// Status returns how the scheduler and its cores fare.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	var st api.Status
	err := c.get(ctx, "/v1/status", nil, &st)
	return st, err
}

// Fleet returns the schedulers that work on the queue.
func (c *Client) Fleet(ctx context.Context) (api.Fleet, error) {
	var out api.Fleet
	err := c.get(ctx, "/v1/fleet", nil, &out)
	return out, err
}

// Overview returns all that somebody sees at a glance.
func (c *Client) Overview(ctx context.Context) (api.Overview, error) {
	var out api.Overview
	err := c.get(ctx, "/v1/overview", nil, &out)
	return out, err
}

// Tenants returns how each tenant stands.
func (c *Client) Tenants(ctx context.Context) ([]api.Tenant, error) {
	var out api.Tenants
	err := c.get(ctx, "/v1/tenants", nil, &out)
	return out.Tenants, err
}

// Workers returns how each kind of worker stands.
func (c *Client) Workers(ctx context.Context) ([]api.Worker, error) {
	var out api.Workers
	err := c.get(ctx, "/v1/workers", nil, &out)
	return out.Workers, err
}

// Timeline returns the attempts that ran within a span, at most limit, 1 to 10,000.
// A zero until is now, a zero since 3 hours before; a limit of 0 is 2,000.
func (c *Client) Timeline(ctx context.Context, since, until time.Time, limit int) (api.Timeline, error) {
	var out api.Timeline
	err := c.get(ctx, "/v1/timeline", url.Values(query{}.time("since", since).time("until", until).number("limit", int64(limit))), &out)
	return out, err
}

// Workflows returns the newest batches whose jobs hang together, at most limit, 1
// to 200; 0 is 50.
func (c *Client) Workflows(ctx context.Context, limit int) ([]api.Workflow, error) {
	var out api.Workflows
	err := c.get(ctx, "/v1/workflows", url.Values(query{}.number("limit", int64(limit))), &out)
	return out.Workflows, err
}

// Workflow returns the jobs of a batch as a graph.
func (c *Client) Workflow(ctx context.Context, batch string) (api.Graph, error) {
	var out api.Graph
	err := c.get(ctx, "/v1/workflows/"+url.PathEscape(batch), nil, &out)
	return out, err
}

// Pipelines returns the pipelines of that name, all with "".
func (c *Client) Pipelines(ctx context.Context, name string) ([]api.Pipeline, error) {
	var out api.Pipelines
	err := c.get(ctx, "/v1/pipelines", url.Values(query{}.add("name", name)), &out)
	return out.Pipelines, err
}

// PipelineEvents returns the events of a pipeline after a sequence number, at most
// limit, 1 to 1000.
func (c *Client) PipelineEvents(ctx context.Context, ref string, after int64, limit int) (api.PipelineEvents, error) {
	var out api.PipelineEvents
	err := c.get(ctx, "/v1/pipelines/"+url.PathEscape(ref)+"/events", url.Values(query{}.number("after", after).number("limit", int64(limit))), &out)
	return out, err
}

// Agents returns the agents that were declared.
func (c *Client) Agents(ctx context.Context) ([]api.Agent, error) {
	var out api.Agents
	err := c.get(ctx, "/v1/agents", nil, &out)
	return out.Agents, err
}

// ReputationQuery selects reputations; zero fields select everything.
type ReputationQuery struct {
	Subject string // its name; "claude" selects "claude:opus", too
	Kind    api.SubjectKind
	Domain  string
}

// Reputations returns what q selects, the best first.
func (c *Client) Reputations(ctx context.Context, q ReputationQuery) ([]api.Reputation, error) {
	var out api.Reputations
	err := c.get(ctx, "/v1/reputations", url.Values(query{}.add("subject", q.Subject).add("kind", string(q.Kind)).add("domain", q.Domain)), &out)
	return out.Reputations, err
}

// SimilarQuery asks which subjects work like another one.
type SimilarQuery struct {
	Subject     string          // its name in full: "claude:opus"
	Kind        api.SubjectKind // "": that of the only subject of this name
	Domain      string          // "": the default domain, of a tenant all
	MaxDistance float64         // from 0 to 1; 0: no bound
	Limit       int             // 1 to 1000; 0: 100
}

// Similar returns the subjects whose work is like that of one, the nearest first.
func (c *Client) Similar(ctx context.Context, q SimilarQuery) (api.SimilarSubjects, error) {
	values := query{}.add("subject", q.Subject).add("kind", string(q.Kind)).add("domain", q.Domain).number("limit", int64(q.Limit))
	if q.MaxDistance > 0 {
		values.add("max_distance", strconv.FormatFloat(q.MaxDistance, 'g', -1, 64))
	}
	var out api.SimilarSubjects
	err := c.get(ctx, "/v1/reputations/similar", url.Values(values), &out)
	return out, err
}

// History returns how a reputation has moved. A domain of "" is the default one.
func (c *Client) History(ctx context.Context, s api.Subject, domain string) ([]api.HistoryPoint, error) {
	var out api.History
	err := c.get(ctx, "/v1/reputations/history", url.Values(query{}.add("subject", s.Name).add("kind", string(s.Kind)).add("domain", domain)), &out)
	return out.Points, err
}

// UsageQuery selects what an account sums; zero fields select everything.
type UsageQuery struct {
	By []api.Dimension // what is kept apart
	// Since and Until are rounded down to 15 minutes. Since is included, Until is not.
	Since, Until time.Time
	Tenant       job.Tenant
	Agent        job.AgentID
	Worker       job.WorkerKind
	Model        string
	Zone         *time.Location // where a day begins, by its name; nil is UTC
}

// Usage returns what was used.
func (c *Client) Usage(ctx context.Context, f UsageQuery) (api.Usage, error) {
	q := query{}.time("since", f.Since).time("until", f.Until).add("tenant", string(f.Tenant)).add("agent", string(f.Agent)).
		add("worker", string(f.Worker)).add("model", f.Model)
	for _, by := range f.By {
		q.add("by", string(by))
	}
	if f.Zone != nil {
		q.add("zone", f.Zone.String())
	}
	var out api.Usage
	err := c.get(ctx, "/v1/usage", url.Values(q), &out)
	return out, err
}

// Grants returns what owners may use, and how much of it they have used.
func (c *Client) Grants(ctx context.Context) ([]api.GrantUse, error) {
	var out api.Grants
	err := c.get(ctx, "/v1/grants", nil, &out)
	return out.Grants, err
}

// Triggers returns how the triggers of the running server are doing.
func (c *Client) Triggers(ctx context.Context) ([]api.Trigger, error) {
	var out api.Triggers
	err := c.get(ctx, "/v1/triggers", nil, &out)
	return out.Triggers, err
}

// Me returns who the scheduler takes this client for.
func (c *Client) Me(ctx context.Context) (api.Me, error) {
	var out api.Me
	err := c.get(ctx, "/v1/me", nil, &out)
	return out, err
}

// Ready returns whether the scheduler takes jobs, and why not.
func (c *Client) Ready(ctx context.Context) (api.Health, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/readyz", nil)
	if err != nil {
		return api.Health{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return api.Health{}, unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return api.Health{}, problemOf(resp)
	}
	var out api.Health
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("read the scheduler's answer: %w", err)
	}
	return out, nil
}
