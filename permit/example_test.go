package permit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// A tenant that has spent its hour's money waits until enough of it is an hour ago.
func ExampleGate() {
	gate := permit.NewGate(permit.Limits{
		MaxConcurrent: 4, TTL: 5 * time.Second,
		CostWindows: []permit.CostWindow{{Tenant: "website", Window: time.Hour, MaxUSD: 2}},
	})
	ask := permit.Request{Job: "fix-login", Tenant: "website", Attempt: 1, Choice: job.Choice{Worker: "codex"}, Limits: job.Limits{MaxTokens: 5000}}
	p, err := gate.Request(context.Background(), ask)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("granted:", p.Tokens, "tokens")
	if p, err = gate.Use(p.ID, "fix-login", 1); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("goes on:", p.Charge(job.Usage{OutputTokens: 4000, CostUSD: 1.5}) == nil)
	fmt.Println("stop:", p.Charge(job.Usage{OutputTokens: 2000, CostUSD: 0.75}))
	p.SettleWith(permit.Result{Usage: job.Usage{OutputTokens: 6000, CostUSD: 2.25}, Class: job.Budget})

	ask.Job = "fix-logout"
	_, err = gate.Request(context.Background(), ask)
	fmt.Println("refused:", err)
	// Output:
	// granted: 5000 tokens
	// goes on: true
	// stop: the run used 6000 tokens, 5000 were left of the job's max_tokens
	// refused: RATE_LIMIT: tenant website spent 2.2500 of 2.0000 US dollars within 1h0m0s
}
