package permit_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// TestGateUnderConcurrency lets many actors ask, use, charge, revoke each
// other's permits, settle and wait at once, while the limits change between
// two sets. Each permit is counted while its reservation is held, which is a
// part of the time that its slots are: those counts never exceed a limit.
func TestGateUnderConcurrency(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		scripts := rapid.SliceOfN(rapid.SliceOfN(rapid.Custom(drawMove), 1, 12), 2, 8).Draw(rt, "scripts")
		var faults []string
		synctest.Test(t, func(*testing.T) {
			c := newCrowd()
			c.play(scripts)
			faults = c.faults
		})
		if len(faults) > 0 {
			rt.Fatalf("%q", faults)
		}
	})
}

// move is one permit's life.
type move struct {
	job       int
	kind      job.WorkerKind
	tenant    job.Tenant
	workspace string
	end       string // how it ends
	charges   int
	wait      time.Duration // before each step of it
	configure bool
}

func drawMove(t *rapid.T) move {
	return move{
		job:       rapid.IntRange(0, 5).Draw(t, "job"),
		kind:      rapid.SampledFrom([]job.WorkerKind{"codex", "shell"}).Draw(t, "kind"),
		tenant:    rapid.SampledFrom([]job.Tenant{"x", "y"}).Draw(t, "tenant"),
		workspace: rapid.SampledFrom([]string{"/v", "/w"}).Draw(t, "workspace"),
		end:       rapid.SampledFrom([]string{"settle", "settle", "settle", "settle twice", "revoke", "expire", "revoke another"}).Draw(t, "end"),
		charges:   rapid.IntRange(0, 3).Draw(t, "charges"),
		wait:      time.Duration(rapid.IntRange(0, 3).Draw(t, "wait")) * 700 * time.Millisecond,
		configure: rapid.IntRange(0, 3).Draw(t, "configure") == 0,
	}
}

const (
	increment = 0.25 // US dollars, of each charge
	maxSpent  = 3.0  // US dollars, of all within a window that no test outlives
	perMinute = 12
)

type crowd struct {
	gate     *permit.Gate
	circuits *circuits

	mu        sync.Mutex // guards what follows
	total     int        // held now
	of        map[any]int
	out       []*permit.Permit
	reserved  int
	released  int
	spent     float64
	used      []time.Time // when the permits were granted that were used, of codex
	faults    []string
	toggle    bool
	attempted map[job.ID]int
}

func newCrowd() *crowd {
	c := &crowd{gate: permit.NewGate(crowdLimits(4)), circuits: &circuits{}, of: map[any]int{}, attempted: map[job.ID]int{}}
	c.gate.SetCircuits(c.circuits)
	return c
}

// crowdLimits are the widest if total is 4.
func crowdLimits(total int) permit.Limits {
	return permit.Limits{
		MaxConcurrent: total, PerKind: map[job.WorkerKind]int{"codex": 2}, EachTenant: 3, EachWorkspace: total - 1, TTL: time.Second,
		KindRates:   map[job.WorkerKind]permit.Rate{"codex": {PerMinute: perMinute - 4 + total}},
		CostWindows: []permit.CostWindow{{Window: 1000 * time.Hour, MaxUSD: maxSpent}},
	}
}

func (c *crowd) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *crowd) play(scripts [][]move) {
	var actors sync.WaitGroup
	for _, script := range scripts {
		actors.Go(func() {
			for _, m := range script {
				c.live(m)
			}
		})
	}
	actors.Wait()
	time.Sleep(time.Second) // what is unused expires
	synctest.Wait()
	c.check()
}

// count notes that a permit of m is held, or that it is not any more.
func (c *crowd) count(m move, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	widest := crowdLimits(4)
	if n > 0 {
		c.reserved++
	} else {
		c.released++
	}
	c.total += n
	if c.total > widest.MaxConcurrent {
		c.fault("%d are held at once", c.total)
	}
	for key, limit := range map[any]int{
		m.kind: widest.PerKind[m.kind], m.tenant: widest.EachTenant, m.workspace: widest.EachWorkspace, jobOf(m): 1,
	} {
		if c.of[key] += n; limit > 0 && c.of[key] > limit {
			c.fault("%d of %v are held at once", c.of[key], key)
		}
	}
}

func jobOf(m move) job.ID { return job.ID(fmt.Sprint(m.job)) }

// live plays a permit's life.
func (c *crowd) live(m move) {
	time.Sleep(m.wait)
	if m.configure {
		c.mu.Lock()
		c.toggle = !c.toggle
		l := crowdLimits(4 - one(c.toggle))
		c.mu.Unlock()
		c.gate.Configure(l)
		c.gate.Throttle(l.MaxConcurrent % 4) // 3, or not at all
	}
	at := time.Now()
	p, err := c.gate.Request(context.Background(), permit.Request{
		Job: jobOf(m), Tenant: m.tenant, Workspace: m.workspace, Attempt: 1, Choice: job.Choice{Worker: m.kind},
		Limits:  job.Limits{MaxAttempts: 2},
		Reserve: func() (func(), error) { c.count(m, 1); return func() { c.count(m, -1) }, nil },
	})
	if err != nil {
		return
	}
	c.mu.Lock()
	c.out = append(c.out, p)
	other := c.out[len(c.out)/2]
	c.mu.Unlock()
	switch m.end {
	case "revoke":
		p.Revoke(errEnd)
	case "revoke another":
		other.Revoke(errEnd)
	case "expire":
		return
	}
	time.Sleep(m.wait / 2)
	if _, err := c.gate.Use(p.ID, p.Job, p.Attempt); err != nil {
		return // revoked, or too late
	}
	c.mu.Lock()
	c.attempted[p.Job]++
	if m.kind == "codex" {
		c.used = append(c.used, at)
	}
	c.mu.Unlock()
	c.run(p, m)
}

// run consumes, and tells the end what it told in part before.
func (c *crowd) run(p *permit.Permit, m move) {
	var total job.Usage
	for range m.charges {
		time.Sleep(m.wait)
		total = total.Add(usd(increment))
		if p.Charge(usd(increment)) != nil {
			break
		}
	}
	c.mu.Lock()
	c.spent += total.CostUSD
	c.mu.Unlock()
	var ends sync.WaitGroup
	for range 1 + one(m.end == "settle twice") {
		ends.Go(func() { p.SettleWith(permit.Result{Usage: total}) })
	}
	ends.Wait()
}

// check looks at what is left when all is over.
func (c *crowd) check() {
	if unused, running := c.gate.Counts(); unused+running != 0 {
		c.fault("%d unused and %d running permits are left", unused, running)
	}
	if c.reserved != c.released || c.total != 0 {
		c.fault("%d were reserved and %d released", c.reserved, c.released)
	}
	if k := c.circuits; k.out != 0 || len(k.told) != k.allowed || len(k.faults) > 0 {
		c.fault("of %d tickets %d are out, faults %q", k.allowed, k.out, k.faults)
	}
	if got := c.gate.Windows()[0].SpentUSD(); math.Abs(got-c.spent) > 1e-9 {
		c.fault("the window holds %v, runs consumed %v", got, c.spent)
	}
	// Each run may have crossed by its last increment, and no more run begins then.
	if bound := maxSpent + crowdRuns*increment; c.spent > bound {
		c.fault("%v was spent, at most %v can be", c.spent, bound)
	}
	for id, n := range c.attempted {
		if n > 2 {
			c.fault("job %s had %d attempts, 2 are allowed", id, n)
		}
	}
	c.checkRate()
}

// crowdRuns is how many runs there can be at once when a window is filled.
const crowdRuns = 4

// checkRate looks at every span between two grants that were used.
func (c *crowd) checkRate() {
	for i, from := range c.used {
		for j, to := range c.used {
			if to.Before(from) {
				continue
			}
			n := 0
			for _, at := range c.used {
				n += one(!at.Before(from) && !at.After(to))
			}
			if most := perMinute + perMinute*to.Sub(from).Minutes(); float64(n) > most+1e-6 {
				c.fault("%d requests from grant %d to %d, in %s", n, i, j, to.Sub(from))
				return
			}
		}
	}
}
