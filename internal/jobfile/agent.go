package jobfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/jsoncheck"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// profile is an agent that a file declares.
type profile struct {
	job.Profile
	given  *agent
	place  string
	broken bool // a mistake was found in it: nothing is said about its jobs
}

// readAgentsFile reads the agents of another file, once for all job files that
// name it.
func (r *reader) readAgentsFile(given string) {
	if given == "" {
		return
	}
	full, data, err := r.read(given, strictyaml.MaxBytes)
	if r.agentsFiles[full] {
		return
	}
	r.agentsFiles[full] = true
	if err != nil {
		r.Failf("agents_file", "cannot read %q (%s): %v", given, full, err)
		return
	}
	var f agentsFile
	doc := r.open(full, data, &f)
	if doc == nil {
		return
	}
	of := reader{Doc: doc, file: full, base: filepath.Dir(full), batch: r.batch}
	of.readAgents(f.Agents)
}

func (r *reader) readAgents(list []agent) {
	for i := range list {
		path := fmt.Sprintf("agents[%d]", i)
		p := r.profile(path, &list[i])
		if p.Name == "" {
			continue
		}
		if first, twice := r.agents[p.Name]; twice {
			r.Failf(path+".name", "%q is the agent at %s already; an agent has one profile", p.Name, first.place)
			continue
		}
		r.agents[p.Name] = p
		r.jobs.Workflow.Agents = append(r.jobs.Workflow.Agents, p.Profile)
	}
}

func (r *reader) profile(path string, a *agent) *profile {
	p := &profile{given: a, place: r.place(path + ".name"), Profile: job.Profile{
		Name: a.Name, Domains: a.Domains, Input: a.Input.json, Output: a.Output.schema,
		Worker: job.WorkerKind(a.Worker), Model: a.Model, Fallback: choices(a.Fallback), SystemPrompt: a.SystemPrompt,
		Oversight: a.Oversight, EvaluationDomain: a.EvaluationDomain,
	}}
	if a.Capabilities != nil {
		p.Capabilities = *a.Capabilities
	}
	switch {
	case a.Worker == best:
		r.Failf(path+".worker", "%s is not for an agent, which is one worker; let its jobs say worker: %s and candidates", best, best)
	case a.Worker != "":
		r.checkKnown(path+".worker", p.Worker)
	}
	for i, c := range p.Fallback {
		if at := fmt.Sprintf("%s.fallback[%d]", path, i); !r.Blamed(at) {
			r.checkKnown(at, c.Worker)
		}
	}
	for _, bad := range p.Validate() {
		r.Failf(path+"."+bad.Field, "%s", bad.Message)
	}
	p.broken = r.faulty(path)
	return p
}

// adopt fills in what the profile says and the job does not. A job that names a
// worker of its own takes neither model nor fallback, which are the profile's
// worker's.
func (p *profile) adopt(e *entry) {
	a := p.given
	if e.Worker == "" && !job.Type(e.Type).Command() && a.Worker != "" {
		e.Worker, e.vetted = a.Worker, true
		if e.Model == "" {
			e.Model = a.Model
		}
		if e.Fallback == nil {
			e.Fallback = a.Fallback
		}
	}
	if e.SystemPrompt == "" {
		e.SystemPrompt = a.SystemPrompt
	}
	if e.Capabilities == nil && e.Type != jobType(job.LLM) {
		e.Capabilities = a.Capabilities
	}
	if !e.Output.given {
		e.Output = a.Output
	}
	if e.Domain == "" && len(a.Domains) == 1 {
		e.Domain = a.Domains[0]
	}
	if e.Oversight == nil {
		e.Oversight = a.Oversight
	}
	if a.EvaluationDomain != "" {
		own := job.Evaluation{}
		if e.Evaluation != nil {
			own = *e.Evaluation
		}
		if own.Domain == "" {
			own.Domain = a.EvaluationDomain
		}
		e.Evaluation = &own
	}
}

// checkAgent refuses a job that is not one for its agent.
func (r *reader) checkAgent(path string, e *entry, p *profile) {
	if e.Capabilities != nil && p.given.Capabilities != nil {
		for i, c := range *e.Capabilities {
			if !slices.Contains(*p.given.Capabilities, c) {
				r.Failf(fmt.Sprintf("%s.capabilities[%d]", path, i), "%q is not a capability of agent %q; a job can narrow what its agent may do, not widen it", c, p.Name)
			}
		}
	}
	if e.Domain != "" && len(p.Domains) > 0 && !slices.Contains(p.Domains, e.Domain) {
		r.Failf(path+".domain", "%q is not a domain of agent %q, want one of %s", e.Domain, p.Name, strings.Join(p.Domains, ", "))
	}
	r.checkInput(path+".input", e.ID, &e.Input, p)
}

// checkInput holds what the job is given against its agent's schema, unless it is
// known only when the job starts. What the job of a pipeline's stage is given are
// events, and its own input is what the pipeline begins with.
func (r *reader) checkInput(path string, name job.Name, in *input, p *profile) {
	takes := p.given.Input.compiled
	if takes == nil || r.Blamed(path) || in.hasExpressions() || r.staged[name] {
		return
	}
	raw := in.json
	if raw == nil {
		raw = json.RawMessage(`{}`)
	}
	mistakes, err := jsoncheck.CheckCompiled(takes, raw)
	switch {
	case err != nil:
		r.Failf(path, "is %v", err)
	case len(mistakes) == 0:
	case in.node == nil:
		r.Failf(path, "is missing, and agent %q must be given one: %s", p.Name, mistakes[0].Why)
	default:
		in.node.Nearest(mistakes[0].At).Failf("is not what agent %q takes: %s", p.Name, mistakes[0].Why)
	}
}

// likeAgent is a hint for a job without a worker whose agent is not declared.
func (r *reader) likeAgent(name string) string {
	if name == "" || r.agents[job.AgentID(name)] != nil {
		return ""
	}
	var known []string
	for _, n := range slices.Sorted(maps.Keys(r.agents)) {
		known = append(known, string(n))
	}
	if near := fields.Nearest(name, known); near != "" {
		return fmt.Sprintf("; or, as no agent %q is declared, did you mean %s there?", name, near)
	}
	return ""
}
