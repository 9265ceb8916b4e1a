package permit_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

func costs(windows ...permit.CostWindow) permit.Limits {
	return permit.Limits{MaxConcurrent: 10, TTL: 5 * time.Second, CostWindows: windows}
}

func usd(cost float64) job.Usage {
	return job.Usage{OutputTokens: 1, CostUSD: cost, CostKnown: true}
}

func ofTenant(tenant job.Tenant, id job.ID) permit.Request {
	r := request(id, 1, "shell")
	r.Tenant = tenant
	return r
}

func TestWindowHealsWhenItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		g := permit.NewGate(costs(permit.CostWindow{Tenant: "acme", Window: hour, MaxUSD: 10}))
		p := run(t, g, ofTenant("acme", "a"))
		p.Charge(usd(4))
		time.Sleep(10 * time.Minute)
		p.Charge(usd(4))
		time.Sleep(10 * time.Minute)
		mustRequest(t, g, ofTenant("acme", "b")).Revoke(errEnd) // 8 of 10
		if stop := p.Charge(usd(3)); stop == nil || stop.Limit != permit.LimitWindow || stop.RetryAfter == 0 {
			t.Errorf("verdict %+v at 11 of 10, want a stop for the window with its time", stop)
		}
		p.Settle(usd(11), false)

		// The first four count for an hour and at most a sixtieth of it more.
		refused := wantRejection(t, g, ofTenant("acme", "b"), job.RateLimited)
		if least := hour - 20*time.Minute; refused.RetryAfter < least || refused.RetryAfter > least+hour/60 {
			t.Errorf("retry after %s, want %s to %s: %s", refused.RetryAfter, least, least+hour/60, refused.Message)
		}
		mustRequest(t, g, ofTenant("other", "c")).Revoke(errEnd)
		time.Sleep(refused.RetryAfter - time.Millisecond)
		wantRejection(t, g, ofTenant("acme", "b"), job.RateLimited)
		time.Sleep(time.Millisecond)
		mustRequest(t, g, ofTenant("acme", "b")).Revoke(errEnd)

		time.Sleep(100 * hour)
		if got := g.Windows()[0].SpentUSD(); got != 0 {
			t.Errorf("%v is still spent after a long time", got)
		}
	})
}

// TestWindowHealsBelowItsLimit: at the limit is not below it.
func TestWindowHealsBelowItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(costs(permit.CostWindow{Window: time.Hour, MaxUSD: 1}))
		for _, id := range []job.ID{"a", "b"} { // both may run before either spends
			p := run(t, g, request(id, 1, "shell"))
			time.AfterFunc(20*time.Minute, func() { p.Settle(usd(1), false) })
			time.Sleep(10 * time.Minute)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		refused := wantRejection(t, g, request("c", 1, "shell"), job.RateLimited)
		time.Sleep(refused.RetryAfter - time.Millisecond)
		wantRejection(t, g, request("c", 1, "shell"), job.RateLimited)
		time.Sleep(time.Millisecond)
		mustRequest(t, g, request("c", 1, "shell")).Revoke(errEnd)
	})
}

// TestWindowOfAll: one tenant's spending holds up the others, and the refusal
// that takes longer is the one that is told.
func TestWindowOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(costs(
			permit.CostWindow{Tenant: "acme", Window: time.Minute, MaxUSD: 1},
			permit.CostWindow{Window: time.Hour, MaxUSD: 5},
			permit.CostWindow{Tenant: "acme", Window: 24 * time.Hour, MaxUSD: 100},
		))
		run(t, g, ofTenant("acme", "a")).Settle(usd(6), false) // nothing was charged before
		for _, tenant := range []job.Tenant{"acme", "other", ""} {
			if r := wantRejection(t, g, ofTenant(tenant, "b"), job.RateLimited); r.RetryAfter < time.Hour {
				t.Errorf("tenant %q: retry after %s, the window of all takes an hour", tenant, r.RetryAfter)
			}
		}
	})
}

// TestWindowOutlivesAGate: what the asker knows to be spent counts.
func TestWindowOutlivesAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := permit.CostWindow{Tenant: "acme", Window: 24 * time.Hour, MaxUSD: 10}
		old := permit.NewGate(costs(day))
		run(t, old, ofTenant("acme", "a")).Settle(usd(10), false)
		known := old.Windows()
		g := permit.NewGate(costs(known...))
		wantRejection(t, g, ofTenant("acme", "b"), job.RateLimited)
		g.Configure(costs(known...)) // twice is not double
		if got := g.Windows()[0].SpentUSD(); got != 10 {
			t.Errorf("%v is spent, want 10", got)
		}
		day.MaxUSD = 11
		g.Configure(costs(day)) // a claim of nothing takes nothing off
		if got := g.Windows()[0].SpentUSD(); got != 10 {
			t.Errorf("%v is spent after a claim of nothing, want 10", got)
		}
		mustRequest(t, g, ofTenant("acme", "b")).Revoke(errEnd)
	})
}

// TestWindowTakesOverSpendingAtItsAge, once: what it has counted itself is no
// claim's to change.
func TestWindowTakesOverSpendingAtItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hour := permit.CostWindow{Window: time.Hour, MaxUSD: 10, Spent: []permit.Spending{
			{Ago: 50 * time.Minute, USD: 6}, {Ago: 10 * time.Minute, USD: 6}, {Ago: 2 * time.Hour, USD: 100}, {Ago: -time.Hour, USD: 1}, {Ago: 0, USD: -50},
		}}
		g := permit.NewGate(costs(hour))
		if got := g.Windows()[0].SpentUSD(); got != 13 {
			t.Errorf("%v is spent, want 13", got)
		}
		refused := wantRejection(t, g, request("a", 1, "shell"), job.RateLimited)
		if least := 10 * time.Minute; refused.RetryAfter < least || refused.RetryAfter > least+time.Minute {
			t.Errorf("retry after %s, want when what is 50 minutes old is an hour old", refused.RetryAfter)
		}
		g.Configure(costs(hour))
		if got := g.Windows()[0].SpentUSD(); got != 13 {
			t.Errorf("%v is spent after the same claim again, want 13", got)
		}
		time.Sleep(refused.RetryAfter)
		mustRequest(t, g, request("a", 1, "shell")).Revoke(errEnd)
	})
}

// TestWindowsThatMeanNothing do not refuse, and named twice the stricter holds.
func TestWindowsThatMeanNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(costs(
			permit.CostWindow{Window: 0, MaxUSD: 1}, permit.CostWindow{Window: time.Hour, MaxUSD: 0},
			permit.CostWindow{Window: -time.Hour, MaxUSD: 1}, permit.CostWindow{Window: time.Hour, MaxUSD: math.NaN()},
			permit.CostWindow{Window: 7, MaxUSD: 1}, // nanoseconds: shorter than its parts
		))
		run(t, g, request("a", 1, "shell")).Settle(usd(100), false)
		time.Sleep(time.Microsecond)
		mustRequest(t, g, request("a", 2, "shell")).Revoke(errEnd)
		g.Configure(costs(permit.CostWindow{Window: time.Hour, MaxUSD: 2}, permit.CostWindow{Window: time.Hour, MaxUSD: 1}, permit.CostWindow{Window: time.Hour, MaxUSD: 3}))
		if got := g.Windows(); len(got) != 1 || got[0].MaxUSD != 1 {
			t.Errorf("windows %+v, want one of 1 dollar", got)
		}
	})
}

// TestWindowAgainstList compares a window with the list of all charges, and
// what it says about its healing with what happens.
func TestWindowAgainstList(t *testing.T) {
	type spend struct {
		after time.Duration
		usd   float64
	}
	rapid.Check(t, func(rt *rapid.T) {
		length := time.Duration(rapid.IntRange(1, 5000).Draw(rt, "length")) * time.Millisecond
		spends := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) spend {
			part := rapid.IntRange(0, 40).Draw(t, "after") // of 30 in the length
			return spend{length * time.Duration(part) / 30, float64(rapid.IntRange(0, 4).Draw(t, "cost"))}
		}), 1, 40).Draw(rt, "spends")
		var fault string
		synctest.Test(t, func(t *testing.T) {
			g := permit.NewGate(costs(permit.CostWindow{Window: length, MaxUSD: 10}))
			p := run(t, g, request("a", 1, "shell"))
			defer p.Settle(job.Usage{}, false)
			began := time.Now()
			for i, s := range spends {
				time.Sleep(s.after)
				p.Charge(usd(s.usd))
				var low, high float64
				at := began
				for _, earlier := range spends[:i+1] {
					at = at.Add(earlier.after)
					if age := time.Since(at); age < length {
						low += earlier.usd
					}
					if age := time.Since(at); age < length+length/60+time.Nanosecond*60 {
						high += earlier.usd
					}
				}
				if got := g.Windows()[0].SpentUSD(); got < low || got > high {
					fault = fmt.Sprintf("after charge %d the window holds %v, want %v to %v", i, got, low, high)
				}
			}
			var refused *permit.Rejection
			if _, err := g.Request(t.Context(), request("b", 1, "shell")); !errors.As(err, &refused) {
				return
			}
			time.Sleep(refused.RetryAfter - time.Millisecond)
			if _, err := g.Request(t.Context(), request("b", 1, "shell")); err == nil {
				fault = fmt.Sprintf("granted before the %s that it asked to wait", refused.RetryAfter)
				return
			}
			time.Sleep(time.Millisecond)
			q, err := g.Request(t.Context(), request("b", 1, "shell"))
			if err != nil {
				fault = fmt.Sprintf("refused after the %s that it asked to wait: %v", refused.RetryAfter, err)
				return
			}
			q.Revoke(errEnd)
		})
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}
