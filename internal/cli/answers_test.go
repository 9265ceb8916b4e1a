package cli

import (
	"reflect"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

func TestPolicyBudgets(t *testing.T) {
	day := job.Duration(24 * time.Hour)
	got := policyBudgets(policy.Config{
		Budget:  policy.Budget{CostUSD: 20},
		Each:    policy.Tenant{Budget: policy.Budget{Tokens: 1000}},
		Tenants: map[job.Tenant]policy.Tenant{"named": {Budget: policy.Budget{CostUSD: 5, Tokens: 9}}, "free": {}},
	}, []policy.Share{
		{Tenant: "other", Used: policy.Demand{Tokens: 100, CostUSD: 1}}, {Tenant: "named", Used: policy.Demand{Tokens: 8, CostUSD: 2}},
		{Tenant: "free", Used: policy.Demand{Tokens: 7, CostUSD: 0.5}},
	})
	want := []api.Budget{
		{Policy: true, Window: day, MaxUSD: 20, SpentUSD: 3.5, Tokens: 115},
		{Tenant: "named", Policy: true, Window: day, MaxUSD: 5, SpentUSD: 2, MaxTokens: 9, Tokens: 8},
		{Tenant: "other", Policy: true, Window: day, SpentUSD: 1, MaxTokens: 1000, Tokens: 100},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("budgets %+v, want %+v", got, want)
	}
	if none := policyBudgets(policy.Config{}, []policy.Share{{Tenant: "t"}}); none != nil {
		t.Errorf("without a bound: %+v", none)
	}
}
