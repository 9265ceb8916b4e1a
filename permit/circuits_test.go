package permit_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// circuits keep a book of the tickets that they gave out.
type circuits struct {
	mu      sync.Mutex
	refuse  error
	out     int
	allowed int
	told    []told
	faults  []string
}

type told struct {
	discarded bool
	class     job.ErrorClass
	took      time.Duration
	retryAt   *time.Time
}

func (c *circuits) Allow(job.Choice) (func(job.ErrorClass, time.Duration, *time.Time), func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, nil, c.refuse
	}
	c.out++
	c.allowed++
	ended := false
	end := func(how told) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if ended {
			c.faults = append(c.faults, "a ticket ended twice")
		}
		ended = true
		c.out--
		c.told = append(c.told, how)
	}
	return func(class job.ErrorClass, took time.Duration, retryAt *time.Time) {
			end(told{false, class, took, retryAt})
		},
		func() { end(told{discarded: true}) }, nil
}

func (c *circuits) State(k job.Choice) string { return "state of " + string(k.Worker) }

type defence func(permit.Request) *permit.Rejection

func (d defence) Admit(r permit.Request) *permit.Rejection { return d(r) }

// TestTicketsEndOnce plays every way in which a permit can end, or not begin.
func TestTicketsEndOnce(t *testing.T) {
	soon := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	discarded := told{discarded: true}
	tests := []struct {
		name string
		play func(t *testing.T, g *permit.Gate)
		want told
	}{
		{"settled", func(t *testing.T, g *permit.Gate) {
			p := run(t, g, request("a", 1, "codex"))
			time.Sleep(time.Minute)
			p.SettleWith(permit.Result{Class: job.RateLimit, RetryAt: &soon})
			p.SettleWith(permit.Result{Class: job.Crash})
		}, told{false, job.RateLimit, time.Minute, &soon}},
		{"succeeded", func(t *testing.T, g *permit.Gate) {
			run(t, g, request("a", 1, "codex")).SettleWith(permit.Result{})
		}, told{}},
		{"lost", func(t *testing.T, g *permit.Gate) {
			run(t, g, request("a", 1, "codex")).SettleWith(permit.Result{Class: job.Crash, Lost: true})
		}, discarded},
		{"settled without a word of how", func(t *testing.T, g *permit.Gate) {
			run(t, g, request("a", 1, "codex")).Settle(job.Usage{}, false)
		}, discarded},
		{"settled unused", func(t *testing.T, g *permit.Gate) {
			mustRequest(t, g, request("a", 1, "codex")).SettleWith(permit.Result{Class: job.Crash})
		}, discarded},
		{"expired", func(t *testing.T, g *permit.Gate) {
			mustRequest(t, g, request("a", 1, "codex"))
			time.Sleep(limits.TTL)
			synctest.Wait()
		}, discarded},
		{"revoked unused", func(t *testing.T, g *permit.Gate) {
			p := mustRequest(t, g, request("a", 1, "codex"))
			p.Revoke(errEnd)
			p.Revoke(errEnd)
		}, discarded},
		{"revoked in use", func(t *testing.T, g *permit.Gate) {
			p := run(t, g, request("a", 1, "codex"))
			p.Revoke(errEnd)
			p.SettleWith(permit.Result{Class: job.CancelledClass})
		}, told{class: job.CancelledClass}},
		{"refused by a limit", func(t *testing.T, g *permit.Gate) {
			g.Configure(permit.Limits{MaxConcurrent: 9, TTL: time.Second, CostWindows: []permit.CostWindow{{Window: time.Hour, MaxUSD: 1, Spent: []permit.Spending{{USD: 1}}}}})
			wantRejection(t, g, request("a", 1, "codex"), job.RateLimited)
		}, discarded},
		{"not reserved", func(t *testing.T, g *permit.Gate) {
			r := request("a", 1, "codex")
			r.Reserve = func() (func(), error) { return nil, errEnd }
			if _, err := g.Request(t.Context(), r); !errors.Is(err, errEnd) {
				t.Errorf("error %v, want that of the reservation", err)
			}
		}, discarded},
		{"closed meanwhile", func(t *testing.T, g *permit.Gate) {
			r := request("a", 1, "codex")
			released := 0
			r.Reserve = func() (func(), error) {
				g.Close(&permit.Rejection{Reason: job.FatalMode, RetryAfter: time.Minute, Message: "ghost"})
				return func() { released++ }, nil
			}
			wantRejection(t, g, r, job.FatalMode)
			if released != 1 {
				t.Errorf("released %d times", released)
			}
		}, discarded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, c := permit.NewGate(limits), &circuits{}
				g.SetCircuits(c)
				tt.play(t, g)
				if len(c.told) != 1 || c.told[0] != tt.want || c.out != 0 || len(c.faults) > 0 {
					t.Errorf("told %+v, %d out, faults %q; want once %+v", c.told, c.out, c.faults, tt.want)
				}
				if unused, running := g.Counts(); unused != 0 || running != 0 {
					t.Errorf("%d unused, %d running permits are left", unused, running)
				}
			})
		})
	}
}

func TestCircuitsRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := permit.NewGate(limits), &circuits{}
		g.SetCircuits(c)
		p := mustRequest(t, g, request("a", 1, "codex"))
		if p.CircuitState != "state of codex" {
			t.Errorf("state %q", p.CircuitState)
		}
		// The slot of codex is taken, yet an open circuit is what the asker hears.
		c.refuse = &permit.Rejection{Reason: job.CircuitOpen, RetryAfter: time.Minute, Message: "codex is sick"}
		if r := wantRejection(t, g, request("b", 1, "codex"), job.CircuitOpen); r.RetryAfter != time.Minute {
			t.Errorf("retry after %s, want what the circuit said", r.RetryAfter)
		}
		// What cannot heal comes before what can.
		spent := request("b", 1, "codex")
		spent.Counted = 3
		wantRejection(t, g, spent, job.LimitExceeded)
		c.refuse = errEnd
		if _, err := g.Request(t.Context(), request("b", 1, "codex")); !errors.Is(err, errEnd) {
			t.Errorf("error %v, want that of the circuits", err)
		}
		g.SetCircuits(nil)
		mustRequest(t, g, request("b", 1, "shell")).Revoke(errEnd)
		p.Revoke(errEnd) // its ticket is still of the old circuits
		if c.out != 0 || len(c.told) != 1 {
			t.Errorf("%d tickets are out, told %+v", c.out, c.told)
		}
	})
}

func TestDefenceIsAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := permit.NewGate(limits), &circuits{}
		g.SetCircuits(c)
		var seen permit.Request
		var answer *permit.Rejection
		g.SetDefence(defence(func(r permit.Request) *permit.Rejection { seen = r; return answer }))
		mustRequest(t, g, request("a", 1, "codex")).Revoke(errEnd)
		if seen.Job != "a" || seen.Tenant != job.DefaultTenant {
			t.Errorf("the defence saw %+v", seen)
		}
		answer = &permit.Rejection{Reason: job.GlobalShed} // says too little
		asked := c.allowed
		if r := wantRejection(t, g, request("a", 1, "codex"), job.GlobalShed); r == answer {
			t.Error("the defence's own rejection was changed")
		}
		answer = &permit.Rejection{Reason: job.LimitExceeded, RetryAfter: time.Hour, Message: "never"}
		wantRejection(t, g, request("a", 1, "codex"), job.LimitExceeded)
		if c.allowed != asked {
			t.Error("the circuits were asked about what the defence had refused")
		}
	})
}

func TestSlotsOfTenantsAndWorkspaces(t *testing.T) {
	l := permit.Limits{
		MaxConcurrent: 10, TTL: time.Minute, EachTenant: 2, PerTenant: map[job.Tenant]int{"big": 3, "free": 0},
		EachWorkspace: 1, PerWorkspace: map[string]int{"/shared": 2},
	}
	tests := []struct {
		name      string
		tenant    job.Tenant
		workspace string
		limit     int
	}{
		{"a tenant that is named", "big", "", 3},
		{"a tenant that is not", "small", "", 2},
		{"no tenant is the default one", "", "", 2},
		{"a tenant without a bound", "free", "", 10},
		{"a workspace", "free", "/repo", 1},
		{"a workspace that is named", "free", "/shared", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{g: permit.NewGate(l)}
				ask := func() permit.Request {
					r := a.request()
					r.Tenant, r.Workspace = tt.tenant, tt.workspace
					return r
				}
				var held []*permit.Permit
				for range tt.limit {
					held = append(held, mustRequest(t, a.g, ask()))
				}
				wantRejection(t, a.g, ask(), job.RateLimited)
				held[0].Revoke(errEnd)
				held = append(held[1:], mustRequest(t, a.g, ask()))
				for _, p := range held {
					p.Revoke(errEnd)
				}
			})
		})
	}
}
