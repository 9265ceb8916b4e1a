package permit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

var limits = permit.Limits{MaxConcurrent: 2, PerKind: map[job.WorkerKind]int{"codex": 1}, TTL: 5 * time.Second}

func request(id job.ID, attempt int, kind job.WorkerKind) permit.Request {
	return permit.Request{Job: id, Attempt: attempt, Choice: job.Choice{Worker: kind}, Limits: job.Limits{MaxAttempts: 3, Timeout: job.Duration(time.Minute)}}
}

func mustRequest(t *testing.T, g *permit.Gate, r permit.Request) *permit.Permit {
	t.Helper()
	p, err := g.Request(context.Background(), r)
	if err != nil {
		t.Fatalf("request for %s attempt %d: %v", r.Job, r.Attempt, err)
	}
	return p
}

// wantRejection checks that the request is refused for the reason.
func wantRejection(t *testing.T, g *permit.Gate, r permit.Request, want job.Reason) *permit.Rejection {
	t.Helper()
	p, err := g.Request(context.Background(), r)
	var rejection *permit.Rejection
	if !errors.As(err, &rejection) {
		t.Fatalf("request for %s attempt %d: got permit %v and error %v, want a rejection", r.Job, r.Attempt, p, err)
	}
	if rejection.Reason != want || rejection.Message == "" || (rejection.RetryAfter == 0) != want.Terminal() {
		t.Fatalf("rejection %+v, want reason %s, a sentence, and a time unless it is terminal", rejection, want)
	}
	return rejection
}

func TestPermitIsUsedOnceForItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(limits)
		p := mustRequest(t, g, request("a", 1, "shell"))
		if _, err := g.Use(p.ID, "a", 2); !errors.Is(err, permit.ErrMismatch) {
			t.Errorf("use for another attempt: %v", err)
		}
		if _, err := g.Use(p.ID, "b", 1); !errors.Is(err, permit.ErrMismatch) {
			t.Errorf("use for another job: %v", err)
		}
		if _, err := g.Use("no such permit", "a", 1); !errors.Is(err, permit.ErrUnknown) {
			t.Errorf("use of an unknown permit: %v", err)
		}
		if _, err := g.Use(p.ID, "a", 1); err != nil {
			t.Errorf("use: %v", err)
		}
		if _, err := g.Use(p.ID, "a", 1); !errors.Is(err, permit.ErrUnknown) {
			t.Errorf("second use: %v", err)
		}
		p.Settle(job.Usage{}, false)
	})
}

func TestUnusedPermitExpiresAndGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(limits)
		var released atomic.Int32
		r := request("a", 1, "codex")
		r.Reserve = func() (func(), error) { return func() { released.Add(1) }, nil }
		p := mustRequest(t, g, r)
		wantRejection(t, g, request("b", 1, "codex"), job.RateLimited)
		time.Sleep(limits.TTL - time.Nanosecond) // virtual time: nobody waits
		synctest.Wait()
		if released.Load() != 0 || p.Context().Err() != nil {
			t.Fatalf("before its time: released %d, context %v", released.Load(), p.Context().Err())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if released.Load() != 1 || !errors.Is(context.Cause(p.Context()), permit.ErrExpired) {
			t.Errorf("after its time: released %d, cause %v", released.Load(), context.Cause(p.Context()))
		}
		if _, err := g.Use(p.ID, "a", 1); !errors.Is(err, permit.ErrUnknown) {
			t.Errorf("use after expiry: %v", err)
		}
		q := mustRequest(t, g, request("b", 1, "codex"))
		q.Revoke(errors.New("end of test"))
	})
}

func TestRevokeStopsARunAndKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(limits)
		p := mustRequest(t, g, request("a", 1, "codex"))
		if _, err := g.Use(p.ID, "a", 1); err != nil {
			t.Fatal(err)
		}
		first := errors.New("first")
		p.Revoke(first)
		p.Revoke(errors.New("second"))
		if context.Cause(p.Context()) != first {
			t.Errorf("cause %v, want the first one", context.Cause(p.Context()))
		}
		// Its processes may still be alive: the slot is free only when it is settled.
		wantRejection(t, g, request("b", 1, "codex"), job.RateLimited)
		p.Settle(job.Usage{}, false)
		p.Settle(job.Usage{}, false)
		mustRequest(t, g, request("b", 1, "codex")).Revoke(first)
		if unused, running := g.Counts(); unused != 0 || running != 0 {
			t.Errorf("%d unused, %d running permits are left", unused, running)
		}
	})
}

func TestReserveFailureGivesTheSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(limits)
		r := request("a", 1, "codex")
		busy := &permit.Rejection{Reason: job.WorkspaceBusy, RetryAfter: time.Second, Message: "taken"}
		r.Reserve = func() (func(), error) { return nil, busy }
		wantRejection(t, g, r, job.WorkspaceBusy)
		mustRequest(t, g, request("a", 1, "codex")).Revoke(busy)
	})
}

func TestLimitsOfAJob(t *testing.T) {
	deadline := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // where a bubble's clock begins
	later := deadline.Add(10 * time.Second)
	tests := []struct {
		name   string
		change func(*permit.Request)
		reason job.Reason // "" means that it is granted
		check  func(permit.Grant) bool
	}{
		{"attempts are used up", func(r *permit.Request) { r.Counted = 3 }, job.LimitExceeded, nil},
		{"attempts are left", func(r *permit.Request) { r.Counted = 2 }, "", nil},
		{"deadline has passed", func(r *permit.Request) { r.Deadline = &deadline }, job.LimitExceeded, nil},
		{"deadline before timeout", func(r *permit.Request) { r.Deadline = &later }, "",
			func(g permit.Grant) bool { return g.Deadline.Equal(later) }},
		{"timeout", func(*permit.Request) {}, "",
			func(g permit.Grant) bool { return g.Deadline.Equal(deadline.Add(time.Minute)) }},
		{"time budget is spent", func(r *permit.Request) {
			r.Limits.RetryBudget.Time, r.Time = job.Duration(time.Minute), time.Minute
		}, job.LimitExceeded, nil},
		{"time budget shortens the run", func(r *permit.Request) {
			r.Limits.RetryBudget.Time, r.Time = job.Duration(time.Minute), 50*time.Second
		}, "", func(g permit.Grant) bool { return g.Deadline.Equal(later) }},
		{"cost is spent", func(r *permit.Request) { r.Limits.MaxCostUSD, r.Spent.CostUSD = 1, 1 }, job.LimitExceeded, nil},
		{"cost budget is spent first", func(r *permit.Request) {
			r.Limits.MaxCostUSD, r.Limits.RetryBudget.CostUSD, r.Spent.CostUSD = 5, 1, 1
		}, job.LimitExceeded, nil},
		{"cost that is left", func(r *permit.Request) { r.Limits.MaxCostUSD, r.Spent.CostUSD = 1, 0.75 }, "",
			func(g permit.Grant) bool { return g.CostUSD == 0.25 }},
		{"tokens are spent", func(r *permit.Request) { r.Limits.MaxTokens, r.Spent.OutputTokens = 10, 10 }, job.LimitExceeded, nil},
		{"tokens that are left", func(r *permit.Request) { r.Limits.MaxTokens, r.Spent.InputTokens = 10, 4 }, "",
			func(g permit.Grant) bool { return g.Tokens == 6 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := permit.NewGate(limits)
				r := request("a", 1, "shell")
				tt.change(&r)
				if tt.reason != "" {
					wantRejection(t, g, r, tt.reason)
					return
				}
				p := mustRequest(t, g, r)
				if tt.check != nil && !tt.check(p.Grant) {
					t.Errorf("grant %+v", p.Grant)
				}
				p.Revoke(errors.New("end of test"))
			})
		})
	}
}

// TestOwnRecordCounts lets an asker claim that nothing was used: the gate's own
// record refuses all the same.
func TestOwnRecordCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(limits)
		use := func(attempt int, lost bool) {
			p := mustRequest(t, g, request("a", attempt, "shell"))
			if _, err := g.Use(p.ID, "a", attempt); err != nil {
				t.Fatal(err)
			}
			p.Settle(job.Usage{OutputTokens: 5}, lost)
		}
		use(1, false)
		use(2, true) // does not count
		use(3, false)
		r := request("a", 4, "shell")
		r.Limits.MaxTokens = 15
		wantRejection(t, g, r, job.LimitExceeded)
		use(4, false)
		wantRejection(t, g, request("a", 5, "shell"), job.LimitExceeded)
	})
}

func TestClosedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(limits)
		p := mustRequest(t, g, request("a", 1, "shell"))
		g.Close(&permit.Rejection{Reason: job.FatalMode, RetryAfter: time.Second, Message: "ghost"})
		wantRejection(t, g, request("b", 1, "shell"), job.FatalMode)
		g.RevokeUnused(errors.New("over"), nil)
		if _, err := g.Use(p.ID, "a", 1); !errors.Is(err, permit.ErrUnknown) {
			t.Errorf("use after revocation: %v", err)
		}
	})
}

// TestConcurrentUse lets many goroutines go for one permit: one gets it.
func TestConcurrentUse(t *testing.T) {
	g := permit.NewGate(limits)
	p := mustRequest(t, g, request("a", 1, "shell"))
	defer p.Settle(job.Usage{}, false)
	var wg sync.WaitGroup
	won := make(chan struct{}, 100)
	for range 100 {
		wg.Go(func() {
			if _, err := g.Use(p.ID, "a", 1); err == nil {
				won <- struct{}{}
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d uses of one permit succeeded", len(won))
	}
}
