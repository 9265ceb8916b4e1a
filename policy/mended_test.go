package policy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// Each of these weaknesses of a published scheduler is shown twice: as it was
// published, where it must show, and as it is here, where it must not.

// turns dispatches n jobs that cost a dollar, one at a time, and counts whose.
func turns(n int, next func() job.Tenant) map[job.Tenant]int {
	got := map[job.Tenant]int{}
	for range n {
		got[next()]++
	}
	return got
}

// backlog gives the tenants a head each that never ends, and returns what runs
// the next one from its start to its end.
func backlog(p Policy, tenants ...job.Tenant) func() job.Tenant {
	ask := Demand{CostUSD: 1}
	for i, t := range tenants {
		p.Add(Head{Lane: job.Lane{Tenant: t}, ID: job.ID(fmt.Sprint(i)), RunnableAt: epoch, Ask: ask})
	}
	return func() job.Tenant {
		h, _ := p.Next(epoch)
		p.Start(h.Lane.Tenant, ask, epoch)
		p.Add(h)
		p.End(h.Lane.Tenant, ask, ask, true, epoch)
		return h.Lane.Tenant
	}
}

// unmended is credit with a tenant's avruntime alone.
type unmended map[job.Tenant]float64

func (u unmended) next(tenants ...job.Tenant) job.Tenant {
	t := slices.MinFunc(tenants, func(a, b job.Tenant) int {
		return int(u[a] - u[b])
	})
	u[t] += 1000
	return t
}

// TestBurstAtZero: a thousand entries, enqueued while their tenant's avruntime
// is still 0, pass nobody by.
func TestBurstAtZero(t *testing.T) {
	fair := func(got map[job.Tenant]int) bool { return got["steady"] >= 99 && got["steady"] <= 101 }

	// As published: an entry's key is its tenant's avruntime when it was enqueued.
	v, keys := unmended{}, map[job.Tenant][]float64{"burst": make([]float64, 1000), "steady": {0}}
	frozen := turns(200, func() job.Tenant {
		who := job.Tenant("steady")
		if keys["burst"][0] <= keys["steady"][0] {
			who = "burst"
		}
		keys[who] = keys[who][1:]
		v[who] += 1000
		if who == "steady" {
			keys[who] = append(keys[who], v[who])
		}
		return who
	})
	if fair(frozen) {
		t.Errorf("a frozen key is fair, %v: this test shows nothing", frozen)
	}
	if got := turns(200, backlog(mustNew(t, Config{Name: NameCredit}), "burst", "steady")); !fair(got) {
		t.Errorf("a burst and a steady tenant ran %v of 200, want 100 each", got)
	}
}

// TestIdleHoarder: a tenant that was idle for a thousand jobs gets its part
// from then on, and not what it left to others before.
func TestIdleHoarder(t *testing.T) {
	fair := func(got map[job.Tenant]int) bool { return got["idle"] >= 99 && got["idle"] <= 101 }

	u := unmended{"idle": 1000}
	turns(1000, func() job.Tenant { return u.next("busy") })
	if got := turns(200, func() job.Tenant { return u.next("busy", "idle") }); fair(got) {
		t.Errorf("an avruntime that is kept is fair, %v: this test shows nothing", got)
	}

	p := mustNew(t, Config{Name: NameCredit})
	turns(1, backlog(p, "idle")) // so that it is known
	p.Remove(job.Lane{Tenant: "idle"})
	turns(1000, backlog(p, "busy"))
	if got := turns(200, backlog(p, "busy", "idle")); !fair(got) {
		t.Errorf("a busy tenant and one that was idle ran %v of 200, want 100 each", got)
	}
}

// TestActualUseCounts: whoever says that its jobs cost a tenth of what they do
// gains nothing by it.
func TestActualUseCounts(t *testing.T) {
	run := func(corrected bool) map[job.Tenant]int {
		p := mustNew(t, Config{Name: NameCredit})
		asks := map[job.Tenant]Demand{"honest": {CostUSD: 1}, "liar": {CostUSD: 0.1}}
		for name, ask := range asks {
			p.Add(Head{Lane: job.Lane{Tenant: name}, ID: job.ID(name), RunnableAt: epoch, Ask: ask})
		}
		return turns(220, func() job.Tenant {
			h, _ := p.Next(epoch)
			used := Demand{CostUSD: 1}
			if !corrected {
				used = h.Ask
			}
			p.Start(h.Lane.Tenant, h.Ask, epoch)
			p.Add(h)
			p.End(h.Lane.Tenant, h.Ask, used, true, epoch)
			return h.Lane.Tenant
		})
	}
	if got := run(false); got["liar"] < 190 {
		t.Errorf("without a correction ran %v of 220: this test shows nothing", got)
	}
	if got := run(true); got["liar"] < 109 || got["liar"] > 111 {
		t.Errorf("ran %v of 220, want 110 each", got)
	}
}

// TestRoundOfManyWorkers: what is in flight counts, so that one round with ten
// idle workers does not give them all to the tenant that was furthest behind.
func TestRoundOfManyWorkers(t *testing.T) {
	round := func(expected Demand) map[job.Tenant]int {
		p := mustNew(t, Config{Name: NameDeficit})
		p.Charge("ahead", Demand{Tokens: 1000}, 1, epoch)
		p.Charge("behind", Demand{Tokens: 500}, 1, epoch)
		for _, name := range []job.Tenant{"ahead", "behind"} {
			p.Add(Head{Lane: job.Lane{Tenant: name}, ID: job.ID(name), RunnableAt: epoch})
		}
		return turns(10, func() job.Tenant {
			h, _ := p.Next(epoch)
			p.Start(h.Lane.Tenant, expected, epoch)
			return h.Lane.Tenant
		})
	}
	if got := round(Demand{}); got["behind"] != 10 {
		t.Errorf("with nothing expected ran %v: this test shows nothing", got)
	}
	// 500 + 7·100 and then by turns: 1250 each, to the nearest job.
	if got := round(Demand{Tokens: 100}); got["behind"] != 7 && got["behind"] != 8 {
		t.Errorf("ran %v of 10, want 7 or 8 of the one behind", got)
	}
}

func mustNew(t testing.TB, c Config) Policy {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
