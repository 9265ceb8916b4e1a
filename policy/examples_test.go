package policy

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

// TestDeficitExample: A of weight 3 has had 1000 tokens, B of weight 1 has had
// 500. A's deficit is 1000/1500 − 3/4 = −8.3 %, B's +8.3 %.
func TestDeficitExample(t *testing.T) {
	p := mustNew(t, Config{Name: NameDeficit, Tenants: map[job.Tenant]Tenant{"a": {Weight: 3}, "b": {Weight: 1}}})
	for _, name := range []job.Tenant{"b", "a"} {
		p.Charge(name, Demand{Tokens: map[job.Tenant]float64{"a": 1000, "b": 500}[name]}, 1, epoch)
		p.Add(Head{Lane: job.Lane{Tenant: name}, ID: job.ID(name), RunnableAt: epoch})
	}
	if h, _ := p.Next(epoch); h.Lane.Tenant != "a" {
		t.Errorf("next is %s, want a", h.Lane.Tenant)
	}
	for i, want := range []float64{-0.0833, 0.0833} {
		if s := p.Shares(epoch)[i]; math.Abs(s.Actual-s.Target-want) > 0.0001 {
			t.Errorf("deficit of %s is %.4f, want %.4f", s.Tenant, s.Actual-s.Target, want)
		}
	}
}

// TestDeficitFirstJob: who has completed nothing within the window comes first,
// whatever the weights, with one job at a time.
func TestDeficitFirstJob(t *testing.T) {
	p := mustNew(t, Config{Name: NameDeficit, Tenants: map[job.Tenant]Tenant{"large": {Weight: 1000}}})
	p.Charge("large", Demand{Tokens: 1}, 1, epoch)
	p.Charge("small", Demand{Tokens: 1e6}, 0, epoch) // all of it by jobs that were put back
	for _, name := range []job.Tenant{"large", "small"} {
		p.Add(Head{Lane: job.Lane{Tenant: name}, ID: job.ID(name), RunnableAt: epoch})
	}
	for _, want := range []job.Tenant{"small", "large", "large"} {
		h, _ := p.Next(epoch)
		if h.Lane.Tenant != want {
			t.Fatalf("next is %s, want %s", h.Lane.Tenant, want)
		}
		p.Start(want, Demand{Tokens: 10}, epoch)
	}
}

// TestDRFExample is the example of section 4.1 of the paper: of 9 CPUs and
// 18 GB, A's tasks need 1 and 4 and B's need 3 and 1. A gets 3, B gets 2.
func TestDRFExample(t *testing.T) {
	for _, as := range []struct {
		name   string
		demand func(cpus, gb float64) Demand
	}{
		{"slots and tokens", func(cpus, gb float64) Demand { return Demand{Slots: cpus, Tokens: gb} }},
		{"cost and slots", func(cpus, gb float64) Demand { return Demand{CostUSD: cpus, Slots: gb} }},
	} {
		p := mustNew(t, Config{Name: NameDRF, Capacity: as.demand(9, 18)})
		needs := map[job.Tenant][2]float64{"a": {1, 4}, "b": {3, 1}}
		for name, n := range needs {
			p.Add(Head{Lane: job.Lane{Tenant: name}, ID: job.ID(name), RunnableAt: epoch, Ask: as.demand(n[0], n[1])})
		}
		cpus, gb, tasks := 9.0, 18.0, map[job.Tenant]int{}
		for {
			h, _ := p.Next(epoch)
			n := needs[h.Lane.Tenant]
			if n[0] > cpus || n[1] > gb {
				break
			}
			cpus, gb = cpus-n[0], gb-n[1]
			tasks[h.Lane.Tenant]++
			p.Start(h.Lane.Tenant, h.Ask, epoch)
		}
		if want := map[job.Tenant]int{"a": 3, "b": 2}; !maps.Equal(tasks, want) {
			t.Errorf("%s: ran %v, want %v", as.name, tasks, want)
		}
		for _, s := range p.Shares(epoch) { // two thirds each
			if math.Abs(s.Actual-0.5) > 1e-9 {
				t.Errorf("%s: share %+v, want half of what was had", as.name, s)
			}
		}
	}
}

// TestBudget: a tenant, and all of them, wait until what they have used leaves
// the window; Wake says when.
func TestBudget(t *testing.T) {
	for name, c := range map[string]Config{
		"tenant": {Each: Tenant{Budget: Budget{Tokens: 1000}}},
		"all":    {Budget: Budget{CostUSD: 2}},
	} {
		for _, c.Name = range Names() {
			c.Window = job.Duration(24 * time.Hour)
			p := mustNew(t, c)
			l := job.Lane{Tenant: "a"}
			p.Add(Head{Lane: l, ID: "1", RunnableAt: epoch})
			ask := Demand{Tokens: 500, CostUSD: 1}
			for range 2 {
				if _, any := p.Next(epoch); !any {
					t.Fatalf("%s, %s: nothing runs below the budget", c.Name, name)
				}
				p.Start("a", ask, epoch)
			}
			if h, any := p.Next(epoch); any {
				t.Errorf("%s, %s: %v runs beyond the budget that is expected to be used", c.Name, name, h)
			}
			if held := p.Shares(epoch)[0].Held; !strings.Contains(held, "budget") {
				t.Errorf("%s, %s: is held by %q, want the budget", c.Name, name, held)
			}
			p.End("a", ask, ask, true, epoch)
			p.End("a", ask, Demand{}, false, epoch) // it never ran
			if _, any := p.Next(epoch); !any {
				t.Errorf("%s, %s: nothing runs although half of the budget was given back", c.Name, name)
			}
			p.Charge("a", ask, 1, epoch)
			wake := p.Wake(epoch)
			if d := wake.Sub(epoch); d < 24*time.Hour || d > 25*time.Hour {
				t.Errorf("%s, %s: wakes after %v, want a window and at most a step", c.Name, name, d)
			}
			if _, any := p.Next(wake.Add(-1)); any {
				t.Errorf("%s, %s: runs before it is to wake", c.Name, name)
			}
			if _, any := p.Next(wake); !any {
				t.Errorf("%s, %s: does not run when it is to wake", c.Name, name)
			}
		}
	}
}

func TestMaxConcurrent(t *testing.T) {
	for _, name := range Names() {
		p := mustNew(t, Config{Name: name, Tenants: map[job.Tenant]Tenant{"a": {Weight: 100, MaxConcurrent: 2, Contracted: true}}})
		for i, who := range []job.Tenant{"a", "b"} {
			p.Add(Head{Lane: job.Lane{Tenant: who, Priority: -i}, ID: job.ID(who), RunnableAt: epoch})
		}
		var running []job.Tenant
		for range 10 {
			h, _ := p.Next(epoch)
			running = append(running, h.Lane.Tenant)
			p.Start(h.Lane.Tenant, Demand{}, epoch)
		}
		s := p.Shares(epoch)[0]
		if s.InFlight != 2 || !strings.Contains(s.Held, "max_concurrent") {
			t.Errorf("%s: started %v, share %+v, want 2 of a", name, running, s)
		}
		p.End("a", Demand{}, Demand{}, true, epoch)
		p.Remove(job.Lane{Tenant: "b"})
		if h, any := p.Next(epoch); !any || h.Lane.Tenant != "a" {
			t.Errorf("%s: next is %v %v, want a, which has one job less", name, any, h)
		}
	}
}

// TestForgotten: memory is that of the tenants within the window.
func TestForgotten(t *testing.T) {
	const n = 10_000
	for _, name := range Names() {
		p := mustNew(t, Config{Name: name, Window: job.Duration(time.Hour)})
		for i := range n {
			l := job.Lane{Tenant: job.Tenant(fmt.Sprint(i))}
			p.Add(Head{Lane: l, ID: "1", RunnableAt: epoch})
			p.Start(l.Tenant, Demand{}, epoch)
			p.Remove(l)
			p.End(l.Tenant, Demand{}, Demand{Tokens: 10}, true, epoch)
		}
		if got := len(p.Shares(epoch.Add(time.Hour))); got != n {
			t.Errorf("%s: %d tenants are known within the window, want %d", name, got, n)
		}
		b := p.(*book)
		if p.Shares(epoch.Add(2 * time.Hour)); len(b.all)+len(b.tenants)+len(b.lanes)+len(b.window.steps) != 0 || b.used != (amount{}) || b.flying != (amount{}) {
			t.Errorf("%s: remembers %d tenants, %d lanes, %d steps and use %+v", name, len(b.all), len(b.lanes), len(b.window.steps), b.used)
		}
		if at := p.Wake(epoch.Add(2 * time.Hour)); !at.IsZero() {
			t.Errorf("%s: wakes at %v although there is nothing", name, at)
		}
	}
}

// TestSteadyStateAllocatesNothing is what the benchmarks show at length.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, name := range Names() {
		d := newDrive(t, name, 100)
		if n := testing.AllocsPerRun(2000, func() { d.dispatch(d.policy.Next(d.now)) }); n != 0 {
			t.Errorf("%s: %v allocations for each job", name, n)
		}
	}
}

// TestFarTimes: times that no int64 of nanoseconds reaches are first or last.
func TestFarTimes(t *testing.T) {
	for _, name := range Names() {
		p := mustNew(t, Config{Name: name, Ageing: job.Duration(time.Hour)})
		p.Add(Head{Lane: job.Lane{Tenant: "never", Priority: math.MaxInt}, ID: "1", RunnableAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
		p.Add(Head{Lane: job.Lane{Tenant: "always", Priority: math.MinInt}, ID: "2"})
		if h, any := p.Next(epoch); !any || h.ID != "2" {
			t.Errorf("%s: next is %v %v", name, any, h)
		}
	}
}

func TestNew(t *testing.T) {
	for _, name := range Names() {
		c := Default()
		c.Name = name
		if _, err := New(c); err != nil {
			t.Errorf("%s with the default settings: %v", name, err)
		}
	}
	for want, c := range map[string]Config{
		`name: "fair" is not a policy, want one of credit, deficit, drf, priority`:             {Name: "fair"},
		`name: "" is not a policy, want one of credit, deficit, drf, priority`:                 {},
		`tiers: "loose" is unknown, want strict or weighted`:                                   {Name: NameCredit, Tiers: "loose"},
		`ageing: is -1s, want a duration of 0s or more`:                                        {Name: NamePriority, Ageing: -job.Duration(time.Second)},
		`window: is 1ms, want a duration of 1s or more, or 0 for 24h`:                          {Name: NameDRF, Window: job.Duration(time.Millisecond)},
		`beta: is NaN, want a number of 0 or more`:                                             {Name: NameCredit, Beta: math.NaN()},
		`capacity.slots: is -1, want a number above 0, or 0 if it does not count`:              {Name: NameDRF, Capacity: Demand{Slots: -1}},
		`budget.tokens: is -5, want a number above 0, or 0 for no bound`:                       {Name: NameDRF, Budget: Budget{Tokens: -5}},
		`each.reputation: is 1.5, want a number from 0 to 1`:                                   {Name: NameCredit, Each: Tenant{Reputation: 1.5}},
		`tenants.a.weight: is -1, want a number from 1e-06 to 1e+06`:                           {Name: NameDRF, Tenants: map[job.Tenant]Tenant{"b": {}, "a": {Weight: -1}}},
		`each.credits: is +Inf, want a number from 1 to 1e+06, or 0 for 1000 times the weight`: {Name: NameDRF, Each: Tenant{Credits: math.Inf(1)}},
		`tenants.a.credits: is 0.5, want a number from 1 to 1e+06, or 0 for 1000`:              {Name: NameCredit, Tenants: map[job.Tenant]Tenant{"a": {Credits: 0.5}}},
		`each.max_concurrent: is -1, want 1 or more, or 0 for no bound`:                        {Name: NameDRF, Each: Tenant{MaxConcurrent: -1}},
		`each.budget.cost_usd: is -1, want a number above 0`:                                   {Name: NameDRF, Each: Tenant{Budget: Budget{CostUSD: -1}}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %s", err, want)
		}
	}
}
