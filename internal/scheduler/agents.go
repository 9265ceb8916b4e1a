package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// agentSpace holds the profiles of all agents, by tenant and name.
const agentSpace = "agents"

// ErrProfile: an agent was declared before, with another profile.
var ErrProfile = errors.New("an agent's profile never changes")

// Declare stores the profiles of a submission's agents, each in the name of the
// tenants whose jobs it has. One that is declared again as it was is left alone;
// the error wraps ErrProfile if one differs, and nothing is stored then.
func Declare(ctx context.Context, store queue.Store, w *job.Workflow, specs []job.Spec, at time.Time) error {
	if len(w.Agents) == 0 {
		return nil
	}
	var ops []queue.Op
	for i := range w.Agents {
		p := &w.Agents[i]
		value, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("write the profile of agent %s: %w", p.Name, err)
		}
		for _, tenant := range tenantsOf(p.Name, specs) {
			key := string(tenant) + "/" + string(p.Name)
			before, err := store.Record(ctx, agentSpace, key)
			switch {
			case err == nil && !sameJSON(before.Value, value):
				return fmt.Errorf("agent %s of tenant %s was declared on %s with another %s: %w; give the changed one another name",
					p.Name, tenant, before.At.Local().Format(time.DateTime), difference(before.Value, value), ErrProfile)
			case err != nil && !errors.Is(err, queue.ErrNotFound):
				return fmt.Errorf("read the profile of agent %s: %w", p.Name, err)
			}
			ops = append(ops, queue.Write{Record: queue.Record{Space: agentSpace, Key: key, Value: value, At: at}, Once: true})
		}
	}
	if err := store.Apply(ctx, ops...); err != nil {
		return fmt.Errorf("store the profiles of agents: %w", err)
	}
	return nil
}

// tenantsOf returns in whose names an agent works; of one without jobs, in whose
// its file's jobs do.
func tenantsOf(agent job.AgentID, specs []job.Spec) []job.Tenant {
	own, all := map[job.Tenant]bool{}, map[job.Tenant]bool{}
	for i := range specs {
		all[specs[i].Tenant] = true
		if specs[i].Agent == agent {
			own[specs[i].Tenant] = true
		}
	}
	if len(own) == 0 {
		own = all
	}
	var list []job.Tenant
	for t := range own {
		list = append(list, t)
	}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	return list
}

func sameJSON(a, b json.RawMessage) bool { return difference(a, b) == "" }

// difference names the fields in which two JSON objects differ.
func difference(a, b json.RawMessage) string {
	var x, y map[string]json.RawMessage
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return "profile"
	}
	var names []string
	for name := range x {
		if string(x[name]) != string(y[name]) {
			names = append(names, name)
		}
	}
	for name := range y {
		if _, has := x[name]; !has {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

// Agent is one agent: its profile and what it has to do.
type Agent struct {
	Tenant  job.Tenant  `json:"tenant"`
	Name    job.AgentID `json:"name"`
	Profile job.Profile `json:"profile"`
	Since   time.Time   `json:"declared_at"`
	// Jobs counts its jobs by the state of their runs.
	Jobs map[job.RunState]int `json:"jobs"`
}

// Agents returns the agents that were declared, by tenant and name.
func Agents(ctx context.Context, store queue.Store) ([]Agent, error) {
	var list []Agent
	for after := ""; ; {
		page, err := store.Records(ctx, agentSpace, after, letterPage)
		if err != nil {
			return nil, fmt.Errorf("list agents: %w", err)
		}
		for i := range page {
			after = page[i].Key
			tenant, name, _ := strings.Cut(page[i].Key, "/")
			a := Agent{Tenant: job.Tenant(tenant), Name: job.AgentID(name), Since: page[i].At, Jobs: map[job.RunState]int{}}
			if err := json.Unmarshal(page[i].Value, &a.Profile); err != nil {
				return nil, fmt.Errorf("read the profile of agent %s: %w", page[i].Key, err)
			}
			jobs, err := AgentJobs(ctx, store, &a)
			if err != nil {
				return nil, err
			}
			for j := range jobs {
				a.Jobs[StateOf(&jobs[j])]++
			}
			list = append(list, a)
		}
		if len(page) < letterPage {
			return list, nil
		}
	}
}

// AgentJobs returns the jobs of an agent, the newest first.
func AgentJobs(ctx context.Context, store queue.Reader, a *Agent) ([]queue.Entry, error) {
	jobs, _, err := store.List(ctx, queue.Filter{Tenant: a.Tenant, Agent: a.Name, Newest: true, Limit: 1 << 30})
	if err != nil {
		return nil, fmt.Errorf("list the jobs of agent %s: %w", a.Name, err)
	}
	return jobs, nil
}
