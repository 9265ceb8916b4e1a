package permit_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

func TestChargeStopsWhatCrossesItsGrant(t *testing.T) {
	tests := []struct {
		name    string
		limits  job.Limits
		charges []job.Usage
		want    []permit.Limit // verdict of each charge; "" is none
	}{
		{"no limit", job.Limits{}, []job.Usage{usd(1e6)}, []permit.Limit{""}},
		{"tokens", job.Limits{MaxTokens: 10},
			[]job.Usage{{InputTokens: 4, OutputTokens: 4}, {OutputTokens: 2}, {OutputTokens: 1}, {}},
			[]permit.Limit{"", "", permit.LimitTokens, permit.LimitTokens}},
		{"cost", job.Limits{MaxCostUSD: 1}, []job.Usage{usd(0.5), usd(0.5), usd(0.25)}, []permit.Limit{"", "", permit.LimitCost}},
		{"the retry budget's cost", job.Limits{MaxCostUSD: 5, RetryBudget: job.RetryBudget{CostUSD: 1}},
			[]job.Usage{usd(1), usd(1)}, []permit.Limit{"", permit.LimitCost}},
		{"nothing comes back", job.Limits{MaxTokens: 10, MaxCostUSD: 1},
			[]job.Usage{{OutputTokens: 10, CostUSD: 1}, {OutputTokens: -100, CostUSD: -100}, {CostUSD: math.NaN()}, {OutputTokens: 1}},
			[]permit.Limit{"", "", "", permit.LimitTokens}},
		{"nothing overflows", job.Limits{MaxTokens: 10},
			[]job.Usage{{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}, {InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}},
			[]permit.Limit{permit.LimitTokens, permit.LimitTokens}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := permit.NewGate(limits)
				r := request("a", 1, "shell")
				r.Limits = tt.limits
				p := run(t, g, r)
				defer p.Settle(job.Usage{}, false)
				for i, u := range tt.charges {
					stop := p.Charge(u)
					var got permit.Limit
					if stop != nil {
						got = stop.Limit
						if stop.Message == "" || stop.RetryAfter != 0 {
							t.Errorf("charge %d: %+v, want a sentence and no time", i, stop)
						}
					}
					if got != tt.want[i] {
						t.Errorf("charge %d: verdict %q, want %q", i, got, tt.want[i])
					}
				}
			})
		})
	}
}

// TestSettleChargesWhatIsLeft: the total of a run is counted once, in its
// job's record and in the windows, however much of it was streamed.
func TestSettleChargesWhatIsLeft(t *testing.T) {
	total := job.Usage{InputTokens: 60, OutputTokens: 40, CostUSD: 4, CostKnown: true}
	half := job.Usage{InputTokens: 30, OutputTokens: 20, CostUSD: 2, CostKnown: true}
	tests := []struct {
		name     string
		streamed []job.Usage
		settled  job.Usage
		cost     float64
		tokens   int64
	}{
		{"nothing was streamed", nil, total, 4, 100},
		{"half of it was", []job.Usage{half}, total, 4, 100},
		{"all of it was", []job.Usage{half, half}, total, 4, 100},
		{"more than all of it was", []job.Usage{half, half, half}, total, 6, 150},
		{"the end says nothing", []job.Usage{half}, job.Usage{}, 2, 50},
		{"the end lies", []job.Usage{half}, job.Usage{OutputTokens: -1000, CostUSD: -1000}, 2, 50},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := permit.NewGate(costs(permit.CostWindow{Window: 1e12, MaxUSD: 1000}))
				p := run(t, g, request("a", 1, "shell"))
				for _, u := range tt.streamed {
					p.Charge(u)
				}
				p.SettleWith(permit.Result{Usage: tt.settled})
				p.SettleWith(permit.Result{Usage: total.Add(total)})
				if p.Charge(total) != nil {
					t.Error("a run that has ended got a verdict")
				}
				if got := g.Windows()[0].SpentUSD(); got != tt.cost {
					t.Errorf("%v is in the window, want %v", got, tt.cost)
				}
				next := request("a", 2, "shell")
				next.Limits.MaxTokens, next.Limits.MaxCostUSD = 1000, 1000
				q := mustRequest(t, g, next)
				if q.Tokens != 1000-tt.tokens || q.CostUSD != 1000-tt.cost {
					t.Errorf("left are %d tokens and %v dollars, want %d and %v", q.Tokens, q.CostUSD, 1000-tt.tokens, 1000-tt.cost)
				}
				q.Revoke(errEnd)
			})
		})
	}
}

func TestOnlyARunIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(costs(permit.CostWindow{Window: 1e12, MaxUSD: 1}))
		p := mustRequest(t, g, request("a", 1, "shell"))
		if stop := p.Charge(usd(5)); stop != nil || g.Windows()[0].SpentUSD() != 0 {
			t.Errorf("an unused permit was charged: %v, %+v", stop, g.Windows())
		}
		if _, err := g.Use(p.ID, "a", 1); err != nil {
			t.Fatal(err)
		}
		p.Revoke(errEnd) // its processes may still consume
		if stop := p.Charge(usd(5)); stop == nil || g.Windows()[0].SpentUSD() != 5 {
			t.Errorf("a run under way to its end was not charged: %v, %+v", stop, g.Windows())
		}
		p.Settle(usd(5), true) // lost: it does not count, its money does
		if got := g.Windows()[0].SpentUSD(); got != 5 {
			t.Errorf("%v is spent, want 5", got)
		}
	})
}

// TestWindowStopsOthers: a run is stopped at its next charge if another has
// filled the window, but not one that spends nothing.
func TestWindowStopsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(costs(permit.CostWindow{Window: 1e12, MaxUSD: 1}))
		a, b := run(t, g, request("a", 1, "shell")), run(t, g, request("b", 1, "shell"))
		a.Charge(usd(1))
		if stop := b.Charge(job.Usage{Commands: 1}); stop != nil {
			t.Errorf("a run that spends nothing was stopped: %v", stop)
		}
		var stop error = b.Charge(usd(0.1))
		var is *permit.Stop
		if !errors.As(stop, &is) || is == nil || is.Limit != permit.LimitWindow {
			t.Errorf("verdict %v, want a stop for the window", stop)
		}
		a.Settle(usd(1), false)
		b.Settle(usd(0.1), false)
	})
}

// TestOneAttemptAtATime: two attempts of a job could together exceed what is left.
func TestOneAttemptAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(limits)
		r := request("a", 1, "shell")
		r.Limits.MaxAttempts = 1
		p := mustRequest(t, g, r)
		wantRejection(t, g, request("a", 2, "shell"), job.RateLimited)
		if g.Live("a", 1) != p || g.Live("a", 2) != nil {
			t.Errorf("live are %v and %v", g.Live("a", 1), g.Live("a", 2))
		}
		p.Revoke(errEnd)
	})
}
