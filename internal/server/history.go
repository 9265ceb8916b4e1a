package server

import (
	"context"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/eval"
)

type historyQuery struct {
	Subject string    `query:"subject" required:"true" minLength:"1" doc:"the name of a worker, agent or tenant, e.g. claude:opus or website/reviewer"`
	Kind    eval.Kind `query:"kind" required:"true" enum:"worker,agent,tenant" doc:"what sort of subject it is"`
	Domain  string    `query:"domain" doc:"absent: the default domain, of a tenant all"`
}

// history tells how a reputation has moved.
func (s *Server) history(ctx context.Context, q *historyQuery) (api.History, error) {
	out := api.History{Points: []api.HistoryPoint{}}
	err := eval.History(ctx, s.opt.Store, eval.Subject{Kind: q.Kind, Name: q.Subject}, q.Domain, func(e *eval.Evaluation, after eval.Reputation) {
		out.Points = append(out.Points, api.HistoryPoint{At: e.At, Job: e.Job, Composite: e.Composite, Score: after.R})
	})
	return out, err
}
