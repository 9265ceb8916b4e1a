package eval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/queue"
)

// Like asks which subjects work like another one.
type Like struct {
	Name   string // of the subject, in full: "claude:opus"
	Kind   Kind   // "": that of the only subject of this name
	Domain string // "": DefaultDomain; a tenant's is AllDomains
	// MaxDistance leaves out who is further away; 0: nobody is.
	MaxDistance float64
	Limit       int // at most so many; 0: all
}

// Similar is a subject that works like another one.
type Similar struct {
	Reputation
	// Distance is that of the two averages (Weights.Distance), in [0, 1]; Dimensions
	// says over how many dimensions: those that both have.
	Distance   float64 `json:"distance"`
	Dimensions int     `json:"dimensions"`
}

// Errors of SimilarTo.
var (
	ErrUnknownSubject  = errors.New("nothing was evaluated of it")
	ErrSeveralSubjects = errors.New("several subjects have this name; say of which kind")
)

// SimilarTo returns the subjects of the same kind and domain whose work is like that
// of one, the nearest first, and that one's own reputation. The distance is that of
// the averages of each dimension, by the weights of the domain in a table of these.
// Whoever has no dimension with it that counts is left out. The error wraps
// ErrUnknownSubject or ErrSeveralSubjects.
func SimilarTo(ctx context.Context, j queue.Journal, table map[string]Weights, q Like) (of Reputation, list []Similar, err error) {
	all, err := Reputations(ctx, j, Filter{Kind: q.Kind})
	if err != nil {
		return Reputation{}, nil, err
	}
	var found []Reputation
	for _, r := range all {
		if r.Subject.Name == q.Name && r.Domain == accountOf(r.Subject, q.Domain).domain {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return Reputation{}, nil, fmt.Errorf("%s in domain %s: %w", q.Name, cmp.Or(q.Domain, DefaultDomain), ErrUnknownSubject)
	case 1:
	default:
		kinds := make([]string, len(found))
		for i := range found {
			kinds[i] = string(found[i].Subject.Kind)
		}
		return Reputation{}, nil, fmt.Errorf("%s: %w: %s", q.Name, ErrSeveralSubjects, strings.Join(kinds, ", "))
	}
	of = found[0]
	weights, _ := WeightsOf(table, of.Domain)
	for _, r := range all {
		if r.Subject.Kind != of.Subject.Kind || r.Domain != of.Domain || r.Subject == of.Subject {
			continue
		}
		far, comparable := weights.Distance(of.Average, r.Average)
		if !comparable || q.MaxDistance > 0 && far > q.MaxDistance {
			continue
		}
		s := Similar{Reputation: r, Distance: far}
		for _, d := range Dimensions() {
			if of.Average.Get(d) != nil && r.Average.Get(d) != nil {
				s.Dimensions++
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Similar) int {
		return cmp.Or(cmp.Compare(a.Distance, b.Distance), cmp.Compare(b.R, a.R), cmp.Compare(a.Subject.Name, b.Subject.Name))
	})
	if q.Limit > 0 && len(list) > q.Limit {
		list = list[:q.Limit]
	}
	return of, list, nil
}
