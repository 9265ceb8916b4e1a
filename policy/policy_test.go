package policy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestAgainstOracle plays the same random calls to a policy and to its oracle.
func TestAgainstOracle(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { playBoth(rt, name) })
		})
	}
}

func playBoth(rt *rapid.T, name string) {
	c := drawConfig(rt, name)
	p, err := New(c)
	if err != nil {
		rt.Fatal(err)
	}
	o, now, id := newOracle(c), epoch, 0
	type running struct {
		tenant job.Tenant
		ask    Demand
	}
	var flying []running
	start := func(t job.Tenant, ask Demand) {
		flying = append(flying, running{t, ask})
		p.Start(t, ask, now)
		o.Start(t, ask, now)
	}
	add := func(l job.Lane, at time.Time) {
		id++
		// Ids come neither in the order of adding nor in that of times.
		h := Head{Lane: l, ID: job.ID(fmt.Sprintf("%03d-%d", id*37%100, id)), RunnableAt: at, Ask: drawDemand(rt)}
		p.Add(h)
		o.Add(h)
	}
	rt.Repeat(map[string]func(*rapid.T){
		"": func(rt *rapid.T) { check(rt, p, o, now) },
		"time": func(rt *rapid.T) {
			now = now.Add(rapid.SampledFrom([]time.Duration{
				1, time.Second, time.Minute, 20 * time.Minute, time.Hour, 5 * time.Hour, 30 * time.Hour, -1, -time.Second, -time.Hour,
			}).Draw(rt, "step"))
		},
		"add": func(rt *rapid.T) {
			add(drawLane(rt), now.Add(rapid.SampledFrom([]time.Duration{-time.Hour, -time.Second, 0, time.Second, time.Hour}).Draw(rt, "runnable")))
		},
		"remove": func(rt *rapid.T) {
			l := drawLane(rt)
			p.Remove(l)
			o.Remove(l)
		},
		"dispatch": func(rt *rapid.T) {
			h, any := p.Next(now)
			if !any {
				return
			}
			start(h.Lane.Tenant, h.Ask)
			if rapid.Bool().Draw(rt, "more") {
				add(h.Lane, now)
				return
			}
			p.Remove(h.Lane)
			o.Remove(h.Lane)
		},
		"start": func(rt *rapid.T) { start(drawTenant(rt), drawDemand(rt)) },
		"charge": func(rt *rapid.T) {
			who, used, n := drawTenant(rt), drawDemand(rt), rapid.IntRange(0, 2).Draw(rt, "completions")
			p.Charge(who, used, n, now)
			o.Charge(who, used, n, now)
		},
		"end": func(rt *rapid.T) {
			if len(flying) == 0 {
				return
			}
			i := rapid.IntRange(0, len(flying)-1).Draw(rt, "which")
			r, used, completed := flying[i], drawDemand(rt), rapid.Bool().Draw(rt, "completed")
			flying = append(flying[:i], flying[i+1:]...)
			p.End(r.tenant, r.ask, used, completed, now)
			o.End(r.tenant, r.ask, used, completed, now)
		},
		"reputation": func(rt *rapid.T) {
			who, r := drawTenant(rt), rapid.SampledFrom([]float64{0, 0.2, 0.9, 1}).Draw(rt, "measured")
			p.(Reputed).SetReputation(who, r)
			o.SetReputation(who, r)
		},
		"settings": func(rt *rapid.T) {
			tenants := drawTenants(rt)
			p.SetTenants(tenants)
			o.SetTenants(tenants)
		},
	})
}

func check(rt *rapid.T, p Policy, o *oracle, now time.Time) {
	got, any := p.Next(now)
	want, wanted := o.Next(now)
	if any != wanted || got != want {
		rt.Fatalf("next is %v %+v, want %v %+v", any, got, wanted, want)
	}
	if again, ok := p.Next(now); ok != any || again != got {
		rt.Fatalf("asked again, next is %v %+v instead of %v %+v", ok, again, any, got)
	}
	if got, want := p.Wake(now), o.Wake(now); !got.Equal(want) || !got.IsZero() && !got.After(now) {
		rt.Fatalf("wakes at %v, want %v, now is %v", got, want, now)
	}
	shares := p.Shares(now)
	if len(shares) != len(o.tenants) {
		rt.Fatalf("knows %d tenants, want %d: %+v", len(shares), len(o.tenants), shares)
	}
	for i, s := range shares {
		if i > 0 && shares[i-1].Tenant >= s.Tenant {
			rt.Fatalf("shares are not in order: %+v", shares)
		}
		seen := o.tenants[s.Tenant]
		used, _ := o.used(seen)
		if d := used.demand(); s.Used.Tokens != d.Tokens || s.Used.CostUSD != d.CostUSD || s.InFlight != len(seen.flying) {
			rt.Fatalf("share %+v, want used %+v and %d in flight", s, d, len(seen.flying))
		}
		if s.Waiting != (len(seen.heads) > 0) || s.Held != "" && wanted && seen.able {
			rt.Fatalf("share %+v, want waiting %v, able %v", s, len(seen.heads) > 0, seen.able)
		}
		for _, x := range []float64{s.Target, s.Actual} {
			if !(x >= 0 && x <= 1+1e-9) || math.IsNaN(x) {
				rt.Fatalf("share %+v is not a part of 1", s)
			}
		}
	}
}

func drawConfig(rt *rapid.T, name string) Config {
	return Config{
		Name:     name,
		Ageing:   job.Duration(rapid.SampledFrom([]time.Duration{0, time.Second, 7 * time.Minute}).Draw(rt, "ageing")),
		Tiers:    rapid.SampledFrom([]string{"", TiersStrict, TiersWeighted}).Draw(rt, "tiers"),
		Beta:     rapid.SampledFrom([]float64{0, 0.5}).Draw(rt, "beta"),
		Window:   job.Duration(rapid.SampledFrom([]time.Duration{time.Hour, 24 * time.Hour, 100 * time.Second}).Draw(rt, "window")),
		Capacity: rapid.SampledFrom([]Demand{{}, {Tokens: 5000}, {Tokens: 5000, CostUSD: 7, Slots: 3}}).Draw(rt, "capacity"),
		Budget:   rapid.SampledFrom([]Budget{{}, {}, {Tokens: 9000}, {CostUSD: 9}}).Draw(rt, "budget"),
		Each:     drawSettings(rt),
		Tenants:  drawTenants(rt),
	}
}

func drawTenants(rt *rapid.T) map[job.Tenant]Tenant {
	return rapid.MapOfN(rapid.Custom(drawTenant), rapid.Custom(drawSettings), 0, 4).Draw(rt, "tenants")
}

func drawSettings(rt *rapid.T) Tenant {
	return Tenant{
		Weight:        rapid.SampledFrom([]float64{0, 1, 2, 2.5, 3, 0.25}).Draw(rt, "weight"),
		Credits:       rapid.SampledFrom([]float64{0, 1, 2, 1500}).Draw(rt, "credits"),
		Contracted:    rapid.Bool().Draw(rt, "contracted"),
		Reputation:    rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(rt, "reputation"),
		MaxConcurrent: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(rt, "max_concurrent"),
		Budget:        rapid.SampledFrom([]Budget{{}, {}, {Tokens: 2000}, {CostUSD: 3}}).Draw(rt, "tenant budget"),
	}
}

func drawTenant(rt *rapid.T) job.Tenant {
	return rapid.SampledFrom([]job.Tenant{"a", "b", "c", "d", "e"}).Draw(rt, "tenant")
}

func drawLane(rt *rapid.T) job.Lane {
	return job.Lane{Tenant: drawTenant(rt), Priority: rapid.IntRange(-1, 2).Draw(rt, "priority"),
		Batch: rapid.SampledFrom([]job.BatchID{"", "batch"}).Draw(rt, "batch")}
}

func drawDemand(rt *rapid.T) Demand {
	return Demand{
		Tokens:  rapid.SampledFrom([]float64{0, 0, 1, 100, 500, 1000}).Draw(rt, "tokens"),
		CostUSD: rapid.SampledFrom([]float64{0, 0, 0.1, 0.2, 1}).Draw(rt, "cost"),
		Slots:   rapid.SampledFrom([]float64{0, 1, 2}).Draw(rt, "slots"),
	}
}
