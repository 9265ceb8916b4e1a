package permit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
)

// byTheToken makes a token cost a micro-dollar.
var byTheToken = &job.Price{Input: 1, Output: 1}

// rigid asks for n tokens, no fewer.
func rigid(n int64) Demand { return Demand{Input: n, Estimate: n, Price: byTheToken} }

// ledger is a gate with runs.
type bench struct {
	*testing.T
	gate *Gate
	n    int
}

// newBench returns a gate with a window of all, in micro-dollars.
func newBench(t *testing.T, all int64, more ...CostWindow) *bench {
	windows := append(more, CostWindow{Window: time.Hour, MaxUSD: float64(all) / 1e6})
	return &bench{T: t, gate: NewGate(Limits{MaxConcurrent: 100, TTL: time.Hour, CostWindows: windows})}
}

// run returns a run of a tenant with so many tokens; 0: any number.
func (l *bench) run(tenant job.Tenant, tokens int64) *Permit {
	l.Helper()
	l.n++
	id := job.ID(fmt.Sprint("job-", l.n))
	p, err := l.gate.Request(l.Context(), Request{Job: id, Tenant: tenant, Attempt: 1, Choice: job.Choice{Worker: "w"}, Limits: job.Limits{MaxTokens: tokens}})
	if err != nil {
		l.Fatal(err)
	}
	if p, err = l.gate.Use(p.ID, id, 1); err != nil {
		l.Fatal(err)
	}
	return p
}

// tryReserve reserves, or returns nil if the request would have to wait.
func tryReserve(p *Permit, d Demand) (*Reservation, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // virtual: it comes as soon as all others wait
	defer cancel()
	r, err := p.Reserve(ctx, d)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return r, err
}

func (l *bench) begins(p *Permit, d Demand) *Reservation {
	l.Helper()
	r, err := tryReserve(p, d)
	if r == nil || err != nil {
		l.Fatalf("the request does not begin: %v", err)
	}
	return r
}

func (l *bench) waits(p *Permit, d Demand) {
	l.Helper()
	if r, err := tryReserve(p, d); r != nil || err != nil {
		l.Fatalf("the request does not wait: %+v, %v", r, err)
	}
}

func (l *bench) refused(p *Permit, d Demand, by Limit, message string) {
	l.Helper()
	_, err := tryReserve(p, d)
	var stop *Stop
	if !errors.As(err, &stop) || stop.Limit != by || !strings.Contains(stop.Message, message) || (stop.RetryAfter > 0) != (by == LimitWindow) {
		l.Fatalf("error %v, want a stop by %s that says %q", err, by, message)
	}
}

// spends charges n tokens of output and ends the request.
func (r *Reservation) spends(n int64) {
	r.Charge(job.Usage{OutputTokens: n, CostUSD: float64(n) / 1e6, CostKnown: true})
	r.End()
}

func TestReserve(t *testing.T) {
	cases := map[string]func(l *bench, run *Permit){
		"beside each other while all fits": func(l *bench, run *Permit) {
			l.begins(run, rigid(40))
			l.begins(run, rigid(60))
			l.waits(run, rigid(1))
		},
		"what is used less makes room": func(l *bench, run *Permit) {
			first := l.begins(run, rigid(90))
			l.waits(run, rigid(50))
			first.spends(10)
			l.begins(run, rigid(50))
		},
		"what is charged is not reserved besides": func(l *bench, run *Permit) {
			first := l.begins(run, rigid(90))
			first.Charge(job.Usage{OutputTokens: 50})
			l.begins(run, rigid(10))
			l.waits(run, rigid(1))
		},
		"what never fits runs alone": func(l *bench, run *Permit) {
			first := l.begins(run, rigid(1))
			d := Demand{Input: 101, Estimate: 30}
			l.waits(run, d)
			first.End()
			big := l.begins(run, d)
			l.waits(run, rigid(1))
			big.spends(99)
			l.begins(run, rigid(1))
		},
		"alone in its run, beside others of the tenant": func(l *bench, run *Permit) {
			l.begins(run, Demand{Input: 101, Estimate: 30})
			l.begins(l.run("t", 100), rigid(50))
			l.waits(run, rigid(1))
		},
		"nothing begins beyond the limit": func(l *bench, run *Permit) {
			l.begins(run, rigid(100)).spends(100)
			l.refused(run, rigid(1), LimitTokens, "the job's budget is used up: 100 of 100 tokens")
		},
		"nor what is likely to go beyond it": func(l *bench, run *Permit) {
			l.begins(run, rigid(70)).spends(70)
			l.refused(run, Demand{Input: 90, Estimate: 25, Output: 1000, Beside: 10, Least: 10}, LimitTokens,
				"what is left of the job's budget does not pay for the next request, which needs about 35 tokens: 70 of 100 tokens are used")
		},
		"the tenant's runs together": func(l *bench, run *Permit) {
			other := l.run("t", 0)
			l.begins(other, rigid(250))
			l.waits(run, rigid(60))
			l.begins(run, rigid(50)).spends(50)
			l.begins(l.run("else", 0), rigid(600))
		},
		"all tenants together": func(l *bench, run *Permit) {
			r := l.begins(l.run("else", 0), rigid(990))
			l.waits(run, rigid(20))
			r.spends(1000)
			l.refused(run, rigid(1), LimitWindow, "the budget of all tenants is used up: 0.0010 of 0.0010 US dollars within 1h0m0s")
		},
		"what has no price is not counted in dollars": func(l *bench, run *Permit) {
			l.begins(l.run("t", 0), Demand{Input: 5000, Estimate: 4000})
		},
		"what a run without reservations spends": func(l *bench, run *Permit) {
			l.run("t", 0).Charge(job.Usage{OutputTokens: 1, CostUSD: 300e-6})
			l.refused(run, rigid(1), LimitWindow, "the budget of tenant t is used up")
		},
		"what another core spends": func(l *bench, run *Permit) {
			l.gate.Learn(map[job.Tenant]float64{"t": 300e-6})
			l.refused(run, rigid(1), LimitWindow, "the budget of tenant t is used up")
		},
		"an earlier attempt": func(l *bench, run *Permit) {
			l.begins(run, rigid(70)).spends(70)
			run.Settle(job.Usage{}, false)
			p, err := l.gate.Request(l.Context(), Request{Job: run.Job, Tenant: "t", Attempt: 2, Limits: job.Limits{MaxTokens: 100}})
			if err != nil {
				l.Fatal(err)
			}
			if p, err = l.gate.Use(p.ID, run.Job, 2); err != nil {
				l.Fatal(err)
			}
			l.refused(p, rigid(31), LimitTokens, "0 of 30 tokens")
			l.begins(p, rigid(30))
		},
		"a window that is raised": func(l *bench, run *Permit) {
			l.begins(l.run("t", 0), rigid(290))
			done := make(chan error)
			go func() {
				_, err := run.Reserve(l.Context(), rigid(20))
				done <- err
			}()
			synctest.Wait()
			l.gate.Configure(Limits{MaxConcurrent: 100, TTL: time.Hour, CostWindows: []CostWindow{{Tenant: "t", Window: time.Hour, MaxUSD: 400e-6}}})
			if err := <-done; err != nil {
				l.Fatal(err)
			}
		},
		"a window that is raised while one has it to itself, whose cost is not reserved": func(l *bench, run *Permit) {
			big := l.begins(l.run("t", 0), Demand{Input: 500, Estimate: 100, Price: byTheToken})
			l.gate.Configure(Limits{MaxConcurrent: 100, TTL: time.Hour, CostWindows: []CostWindow{{Tenant: "t", Window: time.Hour, MaxUSD: 700e-6}}})
			l.waits(run, rigid(1))
			big.spends(500)
			l.begins(l.run("t", 0), rigid(200))
		},
		"a run that has ended": func(l *bench, run *Permit) {
			run.Settle(job.Usage{}, false)
			if _, err := tryReserve(run, rigid(1)); !errors.Is(err, ErrUnknown) {
				l.Fatalf("error %v, want ErrUnknown", err)
			}
		},
		"what is ended twice counts once": func(l *bench, run *Permit) {
			r := l.begins(run, rigid(90))
			r.spends(10)
			r.spends(10)
			if run.charged.Tokens() != 10 || run.holds.reserved != (amount{}) {
				l.Fatalf("charged %+v, reserved %+v", run.charged, run.holds)
			}
		},
		"a request without a limit is given what is left": func(l *bench, run *Permit) {
			r := l.begins(run, Demand{Input: 40, Estimate: 10, Output: 1000, Beside: 20, Least: 20})
			if r.Output != 60 || run.holds.alone != nil {
				l.Fatalf("output %d (alone: %v), want 60 beside others", r.Output, run.holds.alone)
			}
		},
		"alone in its run, its output is limited by what is left beside others": func(l *bench, run *Permit) {
			l.begins(l.run("t", 0), rigid(100))
			r := l.begins(run, Demand{Input: 190, Estimate: 60, Output: 1000, Beside: 5, Least: 5, Price: byTheToken})
			if r.Output != 10 || run.holds.alone != r || l.gate.windows[0].holds.alone != nil {
				l.Fatalf("output %d, want 10, alone in the run only", r.Output)
			}
		},
		"the input probably comes from a cache": func(l *bench, run *Permit) {
			d := Demand{Input: 400, Estimate: 350, Output: 1000, Beside: 1000, Least: 20, Price: &job.Price{Input: 1, Output: 1}}
			p := l.run("t", 0)
			l.refused(p, d, LimitWindow, "")
			d.Token = 0.1
			if r := l.begins(p, d); r.Output != 265 {
				l.Fatalf("output %d, want 265", r.Output)
			}
		},
		"alone, its output is limited by the probable input": func(l *bench, run *Permit) {
			r := l.begins(run, Demand{Input: 400, Estimate: 70, Output: 1000, Beside: 1000, Least: 20})
			if r.Output != 30 || run.holds.alone != r {
				l.Fatalf("output %d, want 30, alone", r.Output)
			}
		},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newBench(t, 1000, CostWindow{Tenant: "t", Window: time.Hour, MaxUSD: 300e-6})
				f(l, l.run("t", 100))
			})
		})
	}
}

// TestReserveOrder: small requests do not starve a large one that came before them.
func TestReserveOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBench(t, 100)
		run := l.run("t", 0)
		first := l.begins(run, rigid(60))
		order := make(chan string, 2)
		var both sync.WaitGroup
		ask := func(name string, n int64) {
			both.Go(func() {
				r, err := run.Reserve(t.Context(), rigid(n))
				if err != nil {
					t.Error(err)
					return
				}
				order <- name
				time.Sleep(time.Second)
				r.End()
			})
			synctest.Wait()
		}
		ask("large", 90)
		ask("small", 30)
		first.End()
		both.Wait()
		if a, b := <-order, <-order; a != "large" || b != "small" {
			t.Fatalf("began: %s, %s", a, b)
		}
	})
}

// TestReserveCancelled: a request that stops waiting keeps nobody from going on, and nothing stays reserved.
func TestReserveCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBench(t, 100)
		run := l.run("t", 0)
		first := l.begins(run, rigid(60))
		l.waits(run, rigid(90)) // and gives up
		l.begins(run, rigid(40)).End()
		first.End()
		l.begins(run, rigid(100))
	})
}

// TestRequestRates: requests of a model wait for its rate of requests and of tokens. What one used of what it was expected
// to use counts in the end, and nothing of one that did not begin.
func TestRequestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBench(t, 1e9)
		limits := Limits{MaxConcurrent: 100, TTL: time.Hour, RequestRates: map[string]RequestRate{"p": {PerMinute: 6}, "m": {TokensPerMinute: 600}}}
		l.gate.Configure(limits)
		run := l.run("t", 10_000)
		start := time.Now()
		ask := func(model string, expected, used int64, took time.Duration) {
			t.Helper()
			r, err := run.Reserve(t.Context(), Demand{Model: model, Input: expected, Estimate: expected})
			if err != nil {
				t.Fatal(err)
			}
			r.spends(used)
			if waited := time.Since(start); waited != took*time.Second {
				t.Fatalf("it began after %s, want %s", waited, took*time.Second)
			}
		}
		ask("q/m", 600, 100, 0)  // the others are free again
		ask("q/m", 500, 900, 0)  // 400 beyond what there was
		ask("q/n", 5000, 900, 0) // not counted
		ask("q/m", 100, 100, 50)
		for range 6 {
			ask("p/n", 1, 1, 50)
		}
		ask("p/n", 1, 1, 60)
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := run.Reserve(ctx, Demand{Model: "p/n"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want that of the context", err)
		}
		ask("p/n", 1, 1, 70)
		var stop *Stop
		if _, err := run.Reserve(t.Context(), Demand{Model: "p/n", Input: 20_000, Estimate: 20_000}); !errors.As(err, &stop) {
			t.Fatalf("error %v, want a *Stop", err)
		}
		ask("p/n", 1, 1, 80) // the one that was refused has waited, and counts no more
		limits.RequestRates = nil
		l.gate.Configure(limits)
		ask("p/n", 1, 1, 80)
	})
}

// TestReserveProperty: in any history of requests, nothing begins in a used-up budget, and what is spent and reserved stays
// within the limit but for what was used beyond what was reserved.
func TestReserveProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		usd := func(name string) float64 { return float64(rapid.Int64Range(1, 4000).Draw(rt, name)) / 1e6 }
		l := newBench(t, rapid.Int64Range(1, 8000).Draw(rt, "all"), CostWindow{Tenant: "t0", Window: time.Hour, MaxUSD: usd("t0")}, CostWindow{Tenant: "t1", Window: time.Hour, MaxUSD: usd("t1")})
		var runs []*Permit
		for i := range 4 {
			runs = append(runs, l.run(job.Tenant(fmt.Sprint("t", i%2)), rapid.Int64Range(0, 2000).Draw(rt, "tokens")))
		}
		over := map[*holds]amount{} // what was used beyond what was reserved
		price := &job.Price{Input: 1, Output: 3}
		var open []*waiter
		var running []*Reservation
		collect := func() {
			kept := open[:0]
			for _, w := range open {
				select {
				case got := <-w.answer:
					if got.reservation != nil {
						running = append(running, got.reservation)
					}
				default:
					kept = append(kept, w)
				}
			}
			open = kept
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch {
			case rapid.Bool().Draw(rt, "ask") || len(running) == 0:
				out := rapid.Int64Range(0, 600).Draw(rt, "output")
				beside := rapid.Int64Range(0, out).Draw(rt, "beside")
				in := rapid.Int64Range(1, 800).Draw(rt, "input")
				w := &waiter{permit: rapid.SampledFrom(runs).Draw(rt, "run"), answer: make(chan answer, 1),
					demand: Demand{Input: in, Estimate: in / 4, Output: out, Beside: beside, Least: beside / 2, Price: price}}
				l.gate.mu.Lock()
				l.gate.waiting = append(l.gate.waiting, w)
				l.gate.advance()
				l.gate.mu.Unlock()
				open = append(open, w)
			default:
				i := rapid.IntRange(0, len(running)-1).Draw(rt, "which")
				r := running[i]
				u := job.Usage{InputTokens: rapid.Int64Range(0, 600).Draw(rt, "used"), CostKnown: true}
				u.CostUSD = price.Cost(u)
				before := amountOf(r.spent)
				r.Charge(u)
				for j, h := range r.of {
					over[h] = over[h].plus(amountOf(r.spent).minus(r.whole[j]).minus(before.minus(r.whole[j])))
				}
				if rapid.Bool().Draw(rt, "ends") {
					running = append(running[:i], running[i+1:]...)
					r.End()
				}
			}
			collect()
			for _, p := range runs {
				for _, b := range l.gate.budgets(time.Now(), p) {
					if !b.spent.plus(b.reserved).within(b.limit.plus(over[b.holds])) {
						rt.Fatalf("%+v spent, %+v reserved, %+v beyond reservations, of %+v", b.spent, b.reserved, over[b.holds], b.limit)
					}
					if b.alone != nil && b.running != 1 {
						rt.Fatalf("%d run beside one that runs alone", b.running)
					}
				}
			}
			if len(open) > 0 && len(running) == 0 {
				rt.Fatalf("%d requests wait for nothing", len(open))
			}
		}
		for len(running) > 0 {
			running[0].End()
			running = running[1:]
			collect()
		}
		if len(open) > 0 || len(l.gate.waiting) > 0 {
			rt.Fatalf("%d requests wait for ever", len(open))
		}
		for _, p := range runs {
			for _, b := range l.gate.budgets(time.Now(), p) {
				if b.reserved != (amount{}) || b.running != 0 {
					rt.Fatalf("%+v reserved of %d requests that have ended", b.reserved, b.running)
				}
			}
			p.Settle(job.Usage{}, false)
		}
	})
}

func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.Int64Range(0, 1e6).Draw(t, "input")
		d := Demand{Input: in, Output: rapid.Int64Range(0, 1e6).Draw(t, "output"), Price: &job.Price{
			Input: rapid.Float64Range(0, 100).Draw(t, "in"), Output: rapid.Float64Range(0.001, 100).Draw(t, "out")}}
		left := amount{rapid.Int64Range(0, 2e6).Draw(t, "tokens"), rapid.Int64Range(0, 1e8).Draw(t, "micros")}
		o := d.fit(left)
		if o > d.Output || o >= 0 && !d.at(o).within(left) {
			t.Fatalf("%d tokens of output cost %v, left are %v", o, d.at(o), left)
		}
		if o >= 0 && o+2 < d.Output && d.at(o+2).within(left) {
			t.Fatalf("%d tokens of output are too few: two more cost %v, left are %v", o, d.at(o+2), left)
		}
	})
}
