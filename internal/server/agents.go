package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (s *Server) agentRoutes() {
	get(s, route{id: "list-agents", method: "GET", path: "/v1/agents", role: read, tag: "agents",
		about: "List the agents that were declared, and how they have done.\nThe list is made at most every 2 s."}, s.listAgents)
	get(s, route{id: "list-evaluations", method: "GET", path: "/v1/jobs/{job}/evaluations", role: read, tag: "agents",
		about: "List what was found of a job's work."}, s.evaluations)
	post(s, route{id: "evaluate-job", method: "POST", path: "/v1/jobs/{job}/evaluations", role: operate, tag: "agents",
		about: "Say what somebody thinks of a job that has ended."}, s.evaluate)
	get(s, route{id: "list-reputations", method: "GET", path: "/v1/reputations", role: read, tag: "agents",
		about: "List the reputations of workers, agents and tenants, the best first."}, s.reputations)
	get(s, route{id: "list-similar", method: "GET", path: "/v1/reputations/similar", role: read, tag: "agents",
		about: "List the subjects of a kind and domain whose work is like that of one, the nearest first.\nThe distance is the weighted distance of the averages of each dimension."}, s.similar)
	get(s, route{id: "get-reputation-history", method: "GET", path: "/v1/reputations/history", role: read, tag: "agents",
		about: "Tell how a reputation has moved, the oldest evaluation first.\nThe last 1,000 to 2,000 evaluations are kept."}, s.history)
}

func (s *Server) listAgents(ctx context.Context, _ *struct{}) (api.Agents, error) {
	return s.agents.get(ctx, s.makeAgents)
}

func (s *Server) makeAgents(ctx context.Context) (api.Agents, error) {
	out := api.Agents{Agents: []api.Agent{}}
	declared, err := scheduler.Agents(ctx, s.opt.Store)
	if err != nil {
		return out, err
	}
	all, err := eval.Reputations(ctx, s.opt.Store, eval.Filter{Kind: eval.Agent})
	if err != nil {
		return out, err
	}
	known := map[string][]api.Reputation{}
	for _, r := range all {
		known[r.Subject.Name] = append(known[r.Subject.Name], ReputationOf(&r))
	}
	for i := range declared {
		a := api.Agent{Tenant: declared[i].Tenant, Profile: declared[i].Profile}
		newest, total, err := s.opt.Store.List(ctx, queue.Filter{Tenant: a.Tenant, Agent: declared[i].Name, Newest: true, Limit: 1})
		if err != nil {
			return out, err
		}
		if a.Jobs = total; len(newest) > 0 {
			a.State = stateWord(&newest[0])
		}
		a.Reputations = some(known[eval.AgentSubject(a.Tenant, declared[i].Name).Name])
		out.Agents = append(out.Agents, a)
	}
	return out, nil
}

func (s *Server) evaluations(ctx context.Context, in *JobPath) (api.Evaluations, error) {
	e, err := s.find(ctx, in)
	if err != nil {
		return api.Evaluations{}, err
	}
	list, err := eval.Evaluations(ctx, s.opt.Store, e.ID)
	return api.Evaluations{Evaluations: each(list, EvaluationOf)}, err
}

func (s *Server) evaluate(ctx context.Context, in *JobPath, said *api.Judgement) (api.Evaluations, error) {
	if s.opt.Evaluator == nil {
		return api.Evaluations{}, fmt.Errorf("evaluations: %w: nobody judges", errNoSuch)
	}
	given := eval.Given{By: said.By, Report: eval.Report{Vector: eval.Vector(said.Vector), Comment: said.Comment}}
	if err := given.Validate(); err != nil {
		var field *job.FieldError
		if errors.As(err, &field) {
			return api.Evaluations{}, badField("body."+field.Field, "%s", field.Message)
		}
		return api.Evaluations{}, badField("body", "%v", err)
	}
	e, err := s.find(ctx, in)
	if err != nil {
		return api.Evaluations{}, err
	}
	attempts, err := s.opt.Store.Attempts(ctx, e.ID)
	if err != nil {
		return api.Evaluations{}, err
	}
	v, err := s.opt.Evaluator.Report(ctx, &e, attempts, given)
	if errors.Is(err, eval.ErrNothing) {
		err = queue.Refuse("%v", err)
	}
	return EvaluationsOf(&v), err
}

type reputationQuery struct {
	Subject string    `query:"subject" doc:"a name such as claude, claude:opus, website or website/reviewer; claude selects claude:opus, too"`
	Kind    eval.Kind `query:"kind" enum:"worker,agent,tenant" doc:"of this kind"`
	Domain  string    `query:"domain" doc:"in this domain"`
}

func (s *Server) reputations(ctx context.Context, q *reputationQuery) (api.Reputations, error) {
	list, err := eval.Reputations(ctx, s.opt.Store, eval.Filter{Name: q.Subject, Kind: q.Kind, Domain: q.Domain})
	return api.Reputations{Reputations: ReputationsOf(list)}, err
}

type similarQuery struct {
	Subject     string    `query:"subject" required:"true" minLength:"1" doc:"the name of a worker, agent or tenant, e.g. claude:opus or website/reviewer"`
	Kind        eval.Kind `query:"kind" enum:"worker,agent,tenant" doc:"what sort of subject it is; absent: that of the only one of this name"`
	Domain      string    `query:"domain" doc:"absent: the default domain, of a tenant all"`
	MaxDistance float64   `query:"max_distance" minimum:"0" maximum:"1" doc:"no further away; absent: anybody"`
	Limit       int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"at most so many"`
}

func (s *Server) similar(ctx context.Context, q *similarQuery) (api.SimilarSubjects, error) {
	var weights map[string]eval.Weights
	if s.opt.Evaluator != nil {
		weights = s.opt.Evaluator.Settings().Weights
	}
	of, list, err := eval.SimilarTo(ctx, s.opt.Store, eval.Table(weights), eval.Like{Name: q.Subject, Kind: q.Kind, Domain: q.Domain, MaxDistance: q.MaxDistance, Limit: q.Limit})
	switch {
	case errors.Is(err, eval.ErrUnknownSubject):
		return api.SimilarSubjects{}, fmt.Errorf("%w: %w", queue.ErrNotFound, err)
	case errors.Is(err, eval.ErrSeveralSubjects):
		return api.SimilarSubjects{}, badField("query.kind", "%v", err)
	}
	return SimilarOf(&of, list), err
}
