package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

// inFlight is how many jobs a benchmark has running at once.
const inFlight = 64

// BenchmarkNext times one pick after another of a queue that is never empty:
// every tenant has a lane whose head is replaced as it is taken, a million of
// entries in all, and a weight of its own. What is timed is Next alone; the
// median is what it takes on a machine that others use as well.
func BenchmarkNext(b *testing.B) {
	eachSize(b, func(b *testing.B, d *drive) {
		var spent time.Duration
		each := make([]time.Duration, b.N)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range each {
			d.now = d.now.Add(10 * time.Millisecond)
			begun := time.Now()
			h, any := d.policy.Next(d.now)
			each[i] = time.Since(begun)
			spent += each[i]
			d.dispatch(h, any)
		}
		b.StopTimer()
		slices.Sort(each)
		b.ReportMetric(max(0, float64(spent)/float64(b.N)-clockCost()), "ns/next")
		b.ReportMetric(max(0, float64(each[b.N/2])-clockCost()), "p50-ns/next")
	})
}

// BenchmarkCycle times all the calls that a job makes: Next, Start, Add, End.
func BenchmarkCycle(b *testing.B) {
	eachSize(b, func(b *testing.B, d *drive) {
		b.ReportAllocs()
		for b.Loop() {
			d.now = d.now.Add(10 * time.Millisecond)
			d.dispatch(d.policy.Next(d.now))
		}
	})
}

func eachSize(b *testing.B, run func(*testing.B, *drive)) {
	for _, name := range Names() {
		for _, n := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("%s/tenants=%d", name, n), func(b *testing.B) { run(b, newDrive(b, name, n)) })
		}
	}
}

// drive runs a policy as a scheduler would.
type drive struct {
	policy Policy
	now    time.Time
	next   int
	asks   []Demand // to draw from
	uses   []Demand
	ids    []job.ID
	flying [inFlight]struct {
		tenant    job.Tenant
		ask, used Demand
	}
}

func newDrive(tb testing.TB, name string, tenants int) *drive {
	random := rand.New(rand.NewPCG(1, uint64(tenants)))
	c := Default()
	c.Name, c.Capacity, c.Tenants = name, Demand{Tokens: 1e9, CostUSD: 1e4, Slots: inFlight}, map[job.Tenant]Tenant{}
	names := make([]job.Tenant, tenants)
	for i := range names {
		names[i] = job.Tenant(fmt.Sprintf("tenant-%05d", i))
		c.Tenants[names[i]] = Tenant{Weight: 1 + 9*random.Float64(), Contracted: i%2 == 0, Reputation: random.Float64()}
	}
	c.Tiers = TiersWeighted
	p, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	d := &drive{policy: p, now: time.Unix(1_800_000_000, 0)}
	for range 4096 {
		ask := Demand{Tokens: float64(1000 + random.IntN(100_000)), CostUSD: random.Float64(), Slots: 1}
		d.asks = append(d.asks, ask)
		d.uses = append(d.uses, Demand{Tokens: ask.Tokens * (0.5 + random.Float64()), CostUSD: ask.CostUSD * (0.5 + random.Float64())})
		d.ids = append(d.ids, job.NewID())
	}
	for i, t := range names {
		p.Add(Head{Lane: job.Lane{Tenant: t}, ID: d.ids[i%len(d.ids)], RunnableAt: d.now.Add(-time.Hour), Ask: d.asks[i%len(d.asks)]})
	}
	for range 20 * tenants { // until it has a past
		d.now = d.now.Add(10 * time.Millisecond)
		d.dispatch(p.Next(d.now))
	}
	return d
}

// dispatch starts h, gives its lane the next head, and ends the job that has
// run for longest.
func (d *drive) dispatch(h Head, any bool) {
	if !any {
		panic("nothing to run although every lane has a head")
	}
	i := d.next % len(d.asks)
	slot := &d.flying[d.next%inFlight]
	if d.next++; d.next > inFlight {
		d.policy.End(slot.tenant, slot.ask, slot.used, true, d.now)
	}
	slot.tenant, slot.ask, slot.used = h.Lane.Tenant, h.Ask, d.uses[i]
	d.policy.Start(h.Lane.Tenant, h.Ask, d.now)
	d.policy.Add(Head{Lane: h.Lane, ID: d.ids[i], RunnableAt: d.now, Ask: d.asks[i]})
}

// clockCost is what a pair of readings of the clock takes, in ns: the median.
func clockCost() float64 {
	each := make([]time.Duration, 10_000)
	for i := range each {
		begun := time.Now()
		each[i] = time.Since(begun)
	}
	slices.Sort(each)
	return float64(each[len(each)/2])
}
