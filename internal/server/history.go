package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/eval"
)

type historyQuery struct {
	Subject string    `query:"subject" required:"true" minLength:"1" doc:"the name of a worker, agent or tenant, e.g. claude:opus or website/reviewer"`
	Kind    eval.Kind `query:"kind" required:"true" enum:"worker,agent,tenant" doc:"what sort of subject it is"`
	Domain  string    `query:"domain" doc:"absent: the default domain, of a tenant all"`
}

// historyPage is how many evaluations are read at once.
const historyPage = 500

// history tells how a reputation has moved. Package eval keeps what it has counted
// of a subject as records of the space evaluations/of/KIND/NAME/DOMAIN, in order,
// and what came of it before as evaluations/base/….
func (s *Server) history(ctx context.Context, q *historyQuery) (client.History, error) {
	out := client.History{Points: []client.HistoryPoint{}}
	j, err := s.journal()
	if err != nil {
		return out, err
	}
	domain := cmp.Or(q.Domain, eval.DefaultDomain)
	if q.Kind == eval.Tenant {
		domain = eval.AllDomains
	}
	account := string(q.Kind) + "/" + url.PathEscape(q.Subject) + "/" + url.PathEscape(domain)
	r := eval.Reputation{Subject: eval.Subject{Kind: q.Kind, Name: q.Subject}, Domain: domain}
	for after := ""; ; {
		page, err := j.Records(ctx, "evaluations/of/"+account, after, historyPage)
		if err != nil {
			return out, fmt.Errorf("read the history of %s: %w", r.Subject, err)
		}
		for i := range page {
			if after == "" && i == 0 {
				if r, err = s.before(ctx, account, page[0].Key, r); err != nil {
					return out, err
				}
			}
			var e eval.Evaluation
			if err := json.Unmarshal(page[i].Value, &e); err != nil {
				return out, fmt.Errorf("read the history of %s: %w", r.Subject, err)
			}
			r = r.Next(&e)
			out.Points = append(out.Points, client.HistoryPoint{At: e.At, Job: e.Job, Composite: e.Composite, Score: r.R})
		}
		if len(page) < historyPage {
			return out, nil
		}
		after = page[len(page)-1].Key
	}
}

// before returns the reputation that the evaluation of that number was counted on.
func (s *Server) before(ctx context.Context, account, number string, r eval.Reputation) (eval.Reputation, error) {
	var n int
	if _, err := fmt.Sscanf(number, "%d", &n); err != nil {
		return r, fmt.Errorf("read the number of an evaluation, %q: %w", number, err)
	}
	if n == 1 {
		return r, nil
	}
	j, err := s.journal()
	if err != nil {
		return r, err
	}
	base, err := j.Record(ctx, "evaluations/base/"+account, fmt.Sprintf("%0*d", len(number), n-1))
	if err != nil {
		return r, fmt.Errorf("read what was before evaluation %d of %s: %w", n, r.Subject, err)
	}
	return r, json.Unmarshal(base.Value, &r)
}
