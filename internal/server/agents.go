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

// agents answers who has done work, and how good it was.
type agents struct {
	entries   entries
	evaluator *eval.Evaluator // nil accepts no evaluations
	list      cached[api.Agents]
}

func (a *agents) routes(r *router) {
	get(r, route{id: "list-agents", method: "GET", path: "/v1/agents", role: read, answered: fromStore, tag: "agents",
		about: "List the declared agents, their latest state and their reputations.\nThe list is computed at most every 2 s."}, a.get)
	get(r, route{id: "list-evaluations", method: "GET", path: "/v1/jobs/{job}/evaluations", role: read, tag: "agents",
		about: "List the evaluations of a job.\nAs long as there is none, measured is what can be measured."}, ofJob(a.entries, a.evaluations))
	post(r, route{id: "evaluate-job", method: "POST", path: "/v1/jobs/{job}/evaluations", role: operate, tag: "agents",
		about: "Evaluate a finished job."}, toJob(a.entries, a.evaluate))
	get(r, route{id: "list-reputations", method: "GET", path: "/v1/reputations", role: read, answered: fromStore, tag: "agents",
		about: "List the reputations of workers, agents and tenants, the best first."}, a.reputations)
	get(r, route{id: "list-similar", method: "GET", path: "/v1/reputations/similar", role: read, tag: "agents",
		about: "List the subjects of a kind and domain whose work is most similar to that of one subject, the nearest first.\nThe distance is the weighted distance of the averages of each dimension."}, a.similar)
	get(r, route{id: "get-reputation-history", method: "GET", path: "/v1/reputations/history", role: read, answered: fromStore, tag: "agents",
		about: "Return the history of a reputation, the oldest evaluation first.\nThe last 1,000 to 2,000 evaluations are kept."}, a.history)
}

func (a *agents) get(ctx context.Context, _ *struct{}) (api.Agents, error) {
	return a.list.get(ctx, a.make)
}

func (a *agents) make(ctx context.Context) (api.Agents, error) {
	out := api.Agents{Agents: []api.Agent{}}
	declared, err := scheduler.Agents(ctx, a.entries.store)
	if err != nil {
		return out, err
	}
	all, err := eval.Reputations(ctx, a.entries.store, eval.Filter{Kind: eval.Agent})
	if err != nil {
		return out, err
	}
	known := map[string][]api.Reputation{}
	for _, r := range all {
		known[r.Subject.Name] = append(known[r.Subject.Name], ReputationOf(&r))
	}
	for i := range declared {
		one := api.Agent{Tenant: declared[i].Tenant, Profile: declared[i].Profile, States: declared[i].Jobs, Since: declared[i].Since}
		newest, total, err := a.entries.store.List(ctx, queue.Filter{Tenant: one.Tenant, Agent: declared[i].Name, Newest: true, Limit: 1})
		if err != nil {
			return out, err
		}
		if one.Jobs = total; len(newest) > 0 {
			one.State = stateWord(&newest[0])
		}
		one.Reputations = some(known[eval.AgentSubject(one.Tenant, declared[i].Name).Name])
		out.Agents = append(out.Agents, one)
	}
	return out, nil
}

func (a *agents) evaluations(ctx context.Context, e *queue.Entry) (api.Evaluations, error) {
	list, err := eval.Evaluations(ctx, a.entries.store, e.ID)
	out := api.Evaluations{Evaluations: each(list, EvaluationOf)}
	if err != nil || len(list) > 0 || a.evaluator == nil {
		return out, err
	}
	attempts, err := a.entries.store.Attempts(ctx, e.ID)
	if err != nil {
		return out, err
	}
	one, err := a.evaluator.Preview(ctx, e, attempts)
	switch {
	case errors.Is(err, eval.ErrNothing):
		return out, nil // nothing was done yet
	case err != nil:
		return out, err
	}
	measured := EvaluationOf(&one)
	out.Measured = &measured
	return out, nil
}

func (a *agents) evaluate(ctx context.Context, e *queue.Entry, said *api.Judgement) (api.Evaluations, error) {
	if a.evaluator == nil {
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
	attempts, err := a.entries.store.Attempts(ctx, e.ID)
	if err != nil {
		return api.Evaluations{}, err
	}
	v, err := a.evaluator.Report(ctx, e, attempts, given)
	if errors.Is(err, eval.ErrNothing) {
		err = queue.Refuse("%v", err)
	}
	return EvaluationsOf(&v), err
}

type reputationQuery struct {
	Subject string    `query:"subject" doc:"a name such as claude, claude:opus, website or website/reviewer; claude selects claude:opus, too"`
	Kind    eval.Kind `query:"kind" enum:"worker,agent,tenant" doc:"only this kind"`
	Domain  string    `query:"domain" doc:"only this domain"`
}

func (a *agents) reputations(ctx context.Context, q *reputationQuery) (api.Reputations, error) {
	list, err := eval.Reputations(ctx, a.entries.store, eval.Filter{Name: q.Subject, Kind: q.Kind, Domain: q.Domain})
	return api.Reputations{Reputations: ReputationsOf(list)}, err
}

type similarQuery struct {
	Subject     string    `query:"subject" required:"true" minLength:"1" doc:"the name of a worker, agent or tenant, e.g. claude:opus or website/reviewer"`
	Kind        eval.Kind `query:"kind" enum:"worker,agent,tenant" doc:"the kind of the subject; absent: that of the only subject of this name"`
	Domain      string    `query:"domain" doc:"the domain; absent: the default domain, for a tenant all domains"`
	MaxDistance float64   `query:"max_distance" minimum:"0" maximum:"1" doc:"the greatest distance; absent: any"`
	Limit       int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"the most to return"`
}

func (a *agents) similar(ctx context.Context, q *similarQuery) (api.SimilarSubjects, error) {
	var weights map[string]eval.Weights
	if a.evaluator != nil {
		weights = a.evaluator.Settings().Weights
	}
	of, list, err := eval.SimilarTo(ctx, a.entries.store, eval.Table(weights), eval.Like{Name: q.Subject, Kind: q.Kind, Domain: q.Domain, MaxDistance: q.MaxDistance, Limit: q.Limit})
	switch {
	case errors.Is(err, eval.ErrUnknownSubject):
		return api.SimilarSubjects{}, fmt.Errorf("%w: %w", queue.ErrNotFound, err)
	case errors.Is(err, eval.ErrSeveralSubjects):
		return api.SimilarSubjects{}, badField("query.kind", "%v", err)
	}
	return SimilarOf(&of, list), err
}

type historyQuery struct {
	Subject string    `query:"subject" required:"true" minLength:"1" doc:"the name of a worker, agent or tenant, e.g. claude:opus or website/reviewer"`
	Kind    eval.Kind `query:"kind" required:"true" enum:"worker,agent,tenant" doc:"the kind of the subject"`
	Domain  string    `query:"domain" doc:"the domain; absent: the default domain, for a tenant all domains"`
}

// history returns how a reputation has changed.
func (a *agents) history(ctx context.Context, q *historyQuery) (api.History, error) {
	out := api.History{Points: []api.HistoryPoint{}}
	err := eval.History(ctx, a.entries.store, eval.Subject{Kind: q.Kind, Name: q.Subject}, q.Domain, func(e *eval.Evaluation, after eval.Reputation) {
		out.Points = append(out.Points, api.HistoryPoint{At: e.At, Job: e.Job, Composite: e.Composite, Score: after.R})
	})
	return out, err
}
