package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// errNoLedger: the store keeps no accounts.
var errNoLedger = errors.New("this scheduler's store keeps no accounts")

func (s *Server) ledger() (queue.Ledger, error) {
	if l, ok := s.store.(queue.Ledger); ok {
		return l, nil
	}
	return nil, errNoLedger
}

// usage answers GET /v1/usage?by=…&since=…&until=…&tenant=…&agent=…&worker=…&model=…&zone=…
func (s *Server) usage(r *http.Request) (any, error) {
	l, err := s.ledger()
	if err != nil {
		return nil, err
	}
	f, err := accountFilter(r.URL.Query())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadRequest, err)
	}
	return UsageOf(r.Context(), l, f)
}

// UsageOf returns what f selects, and the sum of it.
func UsageOf(ctx context.Context, l queue.Ledger, f queue.AccountFilter) (client.Usage, error) {
	accounts, err := l.Accounts(ctx, f)
	if err != nil {
		return client.Usage{}, err
	}
	f.By = nil
	total, err := l.Accounts(ctx, f)
	if err != nil {
		return client.Usage{}, err
	}
	return client.Usage{Accounts: accounts, Total: total[0]}, nil
}

func accountFilter(q url.Values) (f queue.AccountFilter, err error) {
	f = queue.AccountFilter{Tenant: job.Tenant(q.Get("tenant")), Agent: job.AgentID(q.Get("agent")),
		Worker: job.WorkerKind(q.Get("worker")), Model: q.Get("model")}
	for _, by := range q["by"] {
		d := queue.Dimension(by)
		if !slices.Contains(queue.Dimensions(), d) {
			return f, fmt.Errorf("by is %q, want one of %v", by, queue.Dimensions())
		}
		f.By = append(f.By, d)
	}
	for name, field := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if text := q.Get(name); text != "" {
			if *field, err = time.Parse(time.RFC3339, text); err != nil {
				return f, fmt.Errorf("%s is %q, want a time such as 2026-03-01T12:00:00Z", name, text)
			}
		}
	}
	if zone := q.Get("zone"); zone != "" {
		if f.Zone, err = time.LoadLocation(zone); err != nil {
			return f, fmt.Errorf("zone is %q, want a name such as Europe/Berlin", zone)
		}
	}
	return f, nil
}

func (s *Server) grants(r *http.Request) (any, error) {
	l, err := s.ledger()
	if err != nil {
		return nil, err
	}
	list, err := l.Grants(r.Context())
	return client.Grants{Grants: append([]queue.Grant{}, list...)}, err
}

// setGrant answers PUT /v1/grants, whose body is the grant that takes the place
// of the owner's; one that bounds nothing removes it.
func (s *Server) setGrant(r *http.Request) (any, error) {
	if _, err := s.ledger(); err != nil {
		return nil, err
	}
	var g queue.Grant
	if err := decode(r, &g, maxBody); err != nil {
		return nil, err
	}
	if err := g.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadRequest, err)
	}
	if err := s.store.Apply(r.Context(), queue.SetGrant{Grant: g}); err != nil {
		return nil, err
	}
	s.sched.Wake()
	return g, nil
}
