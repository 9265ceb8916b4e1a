package eval

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Of returns the reputation of a subject in a domain; its N is 0 if nothing of
// it was ever judged there. A tenant's is over AllDomains.
func (v *Evaluator) Of(ctx context.Context, s Subject, domain string) (Reputation, error) {
	return Of(ctx, v.config.Store, s, domain)
}

// Of is Evaluator.Of, of any journal.
func Of(ctx context.Context, j queue.Journal, s Subject, domain string) (Reputation, error) {
	a := accountOf(s, domain)
	r, any, err := read[Reputation](ctx, j, reputations, a.key())
	if !any {
		r.Subject, r.Domain = a.subject, a.domain
	}
	return r, err
}

// Reputations returns what f selects: workers, agents, tenants, each by domain,
// the best first.
func (v *Evaluator) Reputations(ctx context.Context, f Filter) ([]Reputation, error) {
	return Reputations(ctx, v.config.Store, f)
}

// Reputations is Evaluator.Reputations, of any journal.
func Reputations(ctx context.Context, j queue.Journal, f Filter) ([]Reputation, error) {
	var list []Reputation
	err := each(ctx, j, reputations, func(_ string, r Reputation) {
		if f.matches(&r) {
			list = append(list, r)
		}
	})
	slices.SortFunc(list, compare)
	return list, err
}

// Evaluations returns what was counted of a job, by attempt and source.
func Evaluations(ctx context.Context, j queue.Journal, id job.ID) ([]Evaluation, error) {
	var list []Evaluation
	err := each(ctx, j, ofJob(id), func(_ string, e Evaluation) { list = append(list, e) })
	return list, err
}

// History tells how the reputation of a subject in a domain ("" is the default) has
// moved: each evaluation that was counted and is kept, the oldest first, with the
// reputation after it.
func History(ctx context.Context, j queue.Journal, s Subject, domain string, tell func(e *Evaluation, after Reputation)) error {
	a := accountOf(s, domain)
	r := Reputation{Subject: a.subject, Domain: a.domain}
	first := true
	var missing error
	err := each(ctx, j, counted+a.key(), func(key string, e Evaluation) {
		if first && key != numberKey(1) {
			r, missing = baseBefore(ctx, j, a, key)
		}
		first = false
		r = r.Next(&e)
		if missing == nil && key != numberKey(r.N) {
			missing = fmt.Errorf("reputation of %s: evaluation %d is missing", s, r.N)
		}
		tell(&e, r)
	})
	return cmp.Or(err, missing)
}

// accountOf returns the account of a subject in a domain, "" for the default; a
// tenant has one of all domains.
func accountOf(s Subject, domain string) account {
	if s.Kind == Tenant {
		return account{s, AllDomains}
	}
	return account{s, cmp.Or(domain, DefaultDomain)}
}

// baseBefore returns the reputation that the evaluation of that key was counted on.
func baseBefore(ctx context.Context, j queue.Journal, a account, key string) (Reputation, error) {
	var n int
	if _, err := fmt.Sscanf(key, "%d", &n); err != nil {
		return Reputation{}, fmt.Errorf("read the number of an evaluation, %q: %w", key, err)
	}
	r, any, err := read[Reputation](ctx, j, bases+a.key(), numberKey(n-1))
	if err == nil && !any {
		err = fmt.Errorf("reputation of %s: what was before evaluation %d is missing", a.subject, n)
	}
	return r, err
}

// Known returns what policy.Best asks of candidates for work of a domain: the
// reputation of each, and of how many evaluations it is.
func (v *Evaluator) Known(ctx context.Context, domain string, candidates []job.Choice) (func(job.Choice) (float64, int), error) {
	known := map[job.Choice]Reputation{}
	for _, c := range candidates {
		r, err := v.Of(ctx, WorkerSubject(c), domain)
		if err != nil {
			return nil, err
		}
		known[c] = r
	}
	return func(c job.Choice) (float64, int) { return known[c].R, known[c].N }, nil
}

// Tenants returns the reputation of each tenant that has one: what
// policy.Reputed is told when it is set up.
func (v *Evaluator) Tenants(ctx context.Context) (map[job.Tenant]float64, error) {
	list, err := v.Reputations(ctx, Filter{Kind: Tenant})
	all := map[job.Tenant]float64{}
	for _, r := range list {
		all[job.Tenant(r.Subject.Name)] = r.R
	}
	return all, err
}
