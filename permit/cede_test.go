package permit

import (
	"errors"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestCede: what is ceded is neither left, nor reserved, nor charged to the run, until it is given back.
func TestCede(t *testing.T) {
	l := newBench(t, 1e9)
	p := l.run("t", 1000)
	if !p.CedeMore(Budget{Tokens: 600}) {
		t.Fatal("600 of 1000 were not ceded")
	}
	if left, tokens, cost := p.Left(); left != (Budget{Tokens: 400}) || !tokens || cost {
		t.Errorf("left %+v, tokens %v, cost %v", left, tokens, cost)
	}
	for _, n := range []int64{400, 401} {
		if p.CedeMore(Budget{Tokens: n}) {
			t.Errorf("%d more were ceded, with 400 left", n)
		}
	}
	var stop *Stop
	if _, err := tryReserve(p, rigid(401)); !errors.As(err, &stop) || stop.Limit != LimitTokens {
		t.Errorf("401 of 400 were reserved: %v", err)
	}
	r, err := tryReserve(p, rigid(400))
	if err != nil || r == nil {
		t.Fatalf("400 of 400: %v, %v", r, err)
	}
	if p.CedeMore(Budget{Tokens: 1}) {
		t.Error("what a request has reserved was ceded")
	}
	r.End()
	if stop := p.Charge(job.Usage{InputTokens: 400}); stop != nil {
		t.Errorf("stopped at 400: %v", stop)
	}
	if stop := p.Charge(job.Usage{InputTokens: 1}); stop == nil || stop.Limit != LimitTokens {
		t.Errorf("not stopped at 401: %v", stop)
	}
	p.Cede(Budget{Tokens: 100}) // the others have used less
	if left, _, _ := p.Left(); left.Tokens != 1000-100-401 {
		t.Errorf("%d are left", left.Tokens)
	}
	if stop := p.Charge(job.Usage{InputTokens: 1}); stop != nil {
		t.Errorf("stopped with %v", stop)
	}
	free := l.run("t", 0)
	if !free.CedeMore(Budget{Tokens: 1 << 40, CostUSD: 1e6}) {
		t.Error("a run without limits cedes nothing")
	}
}

// TestCededOnCost: what is ceded of the dollars, with a limit that is in no whole micro-dollars.
func TestCededOnCost(t *testing.T) {
	g := NewGate(Limits{MaxConcurrent: 9, TTL: 1 << 40})
	request := Request{Job: "j", Attempt: 1, Choice: job.Choice{Worker: "w"}, Limits: job.Limits{MaxCostUSD: 1}, Ceded: Budget{CostUSD: .75}}
	p, err := g.Request(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = g.Use(p.ID, "j", 1); err != nil {
		t.Fatal(err)
	}
	if left, tokens, cost := p.Left(); left.CostUSD != .25 || tokens || !cost {
		t.Errorf("left %+v, tokens %v, cost %v", left, tokens, cost)
	}
	if stop := p.Charge(job.Usage{CostUSD: .26}); stop == nil || stop.Limit != LimitCost {
		t.Errorf("not stopped: %v", stop)
	}
	p.Settle(job.Usage{}, false)
	request.Attempt, request.Ceded = 2, Budget{CostUSD: .74}
	var refused *Rejection
	if _, err := g.Request(t.Context(), request); !errors.As(err, &refused) || refused.Reason != job.LimitExceeded {
		t.Errorf("nothing is left, and the next attempt runs: %v", err)
	}
}

// TestLend: a slot that is lent is free, and is given back once.
func TestLend(t *testing.T) {
	g := NewGate(Limits{MaxConcurrent: 1, EachTenant: 1, TTL: 1 << 40})
	run := func(id job.ID) (*Permit, error) {
		p, err := g.Request(t.Context(), Request{Job: id, Attempt: 1, Choice: job.Choice{Worker: "w"}})
		if err != nil {
			return nil, err
		}
		return g.Use(p.ID, id, 1)
	}
	lead, err := run("lead")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run("child"); err == nil {
		t.Fatal("two runs have the only slot")
	}
	lead.Lend(true)
	lead.Lend(true)
	child, err := run("child")
	if err != nil {
		t.Fatalf("the slot that was lent: %v", err)
	}
	if _, err := run("other"); err == nil {
		t.Error("the slot was lent twice")
	}
	lead.Lend(false)
	child.Settle(job.Usage{}, false)
	if _, err := run("other"); err == nil {
		t.Error("the lead has no slot")
	}
	lead.Lend(true)
	lead.Settle(job.Usage{}, false)
	lead.Lend(false) // it has ended
	if _, err := run("other"); err != nil {
		t.Errorf("a slot is lost: %v", err)
	}
	if _, err := run("another"); err == nil {
		t.Error("a slot was given back twice")
	}
}
