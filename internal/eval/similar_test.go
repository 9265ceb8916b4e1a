package eval

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/agentsched/agentsched/queue"
)

// TestSimilarTo: the nearest first, by the formula, of the same kind and domain.
func TestSimilarTo(t *testing.T) {
	m := newMemory()
	partly := func(quality float64) Vector { return Vector{}.With(Quality, quality) }
	for _, r := range []Reputation{
		{Subject: Subject{Agent, "web/best"}, Domain: "legal", R: 0.9, N: 9, Average: vector(0.9, 0.9, 0.6, 0.7, 0.9, 0.8)},
		{Subject: Subject{Agent, "web/far"}, Domain: "legal", R: 0.4, N: 3, Average: vector(0.1, 0.2, 0.9, 0.9, 0.4, 0.5)},
		{Subject: Subject{Agent, "shop/near"}, Domain: "legal", R: 0.85, N: 5, Average: vector(0.8, 0.9, 0.6, 0.7, 0.9, 0.8)},
		{Subject: Subject{Agent, "shop/same, better"}, Domain: "legal", R: 0.86, N: 5, Average: vector(0.8, 0.9, 0.6, 0.7, 0.9, 0.8)},
		{Subject: Subject{Agent, "shop/partly"}, Domain: "legal", R: 0.7, N: 2, Average: partly(0.7)},
		{Subject: Subject{Agent, "shop/incomparable"}, Domain: "legal", R: 0.7, N: 2},
		{Subject: Subject{Agent, "web/best"}, Domain: "security", R: 0.1, N: 1, Average: vector(0, 0, 0, 0, 0, 0)},
		{Subject: Subject{Agent, "web/elsewhere"}, Domain: "security", R: 0.9, N: 9, Average: vector(0.9, 0.9, 0.6, 0.7, 0.9, 0.8)},
		{Subject: Subject{Worker, "claude"}, Domain: "legal", R: 0.9, N: 9, Average: vector(0.9, 0.9, 0.6, 0.7, 0.9, 0.8)},
		{Subject: Subject{Worker, "web"}, Domain: DefaultDomain, R: 0.9, N: 9, Average: partly(1)},
		{Subject: Subject{Tenant, "web"}, Domain: AllDomains, R: 0.9, N: 9, Average: partly(1)},
		{Subject: Subject{Tenant, "shop"}, Domain: AllDomains, R: 0.5, N: 9, Average: partly(0.5)},
	} {
		rec, err := record(reputations, account{r.Subject, r.Domain}.key(), r, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Apply(t.Context(), queue.Write{Record: rec}); err != nil {
			t.Fatal(err)
		}
	}
	// By the weights of legal: quality 0.35, adherence 0.25, speed 0.05, cost 0.10, error rate 0.15, revisions 0.10.
	far := math.Sqrt(0.35*0.64 + 0.25*0.49 + 0.05*0.09 + 0.10*0.04 + 0.15*0.25 + 0.10*0.09)
	for _, c := range []struct {
		what string
		ask  Like
		want []Similar
	}{
		{"an agent", Like{Name: "web/best", Domain: "legal"}, []Similar{
			{Reputation{Subject: Subject{Agent, "shop/same, better"}}, math.Sqrt(0.35 * 0.01), 6},
			{Reputation{Subject: Subject{Agent, "shop/near"}}, math.Sqrt(0.35 * 0.01), 6},
			{Reputation{Subject: Subject{Agent, "shop/partly"}}, 0.2, 1},
			{Reputation{Subject: Subject{Agent, "web/far"}}, far, 6},
		}},
		{"within a distance", Like{Name: "web/best", Kind: Agent, Domain: "legal", MaxDistance: 0.2, Limit: 1}, []Similar{
			{Reputation{Subject: Subject{Agent, "shop/same, better"}}, math.Sqrt(0.35 * 0.01), 6},
		}},
		{"a tenant, over all domains", Like{Name: "web", Kind: Tenant}, []Similar{{Reputation{Subject: Subject{Tenant, "shop"}}, 0.5, 1}}},
		{"the only one", Like{Name: "claude", Domain: "legal"}, nil},
	} {
		of, got, err := SimilarTo(t.Context(), m, Presets(), c.ask)
		if err != nil || of.Subject.Name != c.ask.Name || len(got) != len(c.want) {
			t.Errorf("%s: %+v of %+v, %v; want %d", c.what, got, of, err, len(c.want))
			continue
		}
		for i, w := range c.want {
			if g := got[i]; g.Subject != w.Subject || math.Abs(g.Distance-w.Distance) > 1e-12 || g.Dimensions != w.Dimensions || g.N == 0 {
				t.Errorf("%s: number %d is %+v, want %+v", c.what, i+1, g, w)
			}
		}
	}
	if _, _, err := SimilarTo(t.Context(), m, Presets(), Like{Name: "web"}); !errors.Is(err, ErrSeveralSubjects) {
		t.Errorf("a name of two subjects: %v", err)
	}
	if _, _, err := SimilarTo(t.Context(), m, Presets(), Like{Name: "web/best"}); !errors.Is(err, ErrUnknownSubject) {
		t.Errorf("in a domain where it has done nothing: %v", err)
	}
}
