package permit_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

const validity = time.Minute

var errLapsed = errors.New("the permit lapsed")

// host is one on which a core looks at its permits and a scheduler renews them
// each second, in virtual time.
type host struct {
	g            *permit.Gate
	awake, slept time.Duration
	looked       time.Duration // awake, at the last look
	lapsed       []int         // how many permits, each time that some did

	renewing bool // the scheduler works
	stopped  bool // the core does not
}

// run lets time pass while the host is awake. Both act at the same moments, the
// core first: the worst order.
func (h *host) run(d time.Duration) {
	for end := h.awake + d; h.awake < end; {
		h.awake += time.Second / 4
		if !h.stopped && h.awake-h.looked >= h.g.LookEvery() {
			h.looked = h.awake
			if n := h.g.Lapse(h.awake+h.slept, errLapsed); n > 0 {
				h.lapsed = append(h.lapsed, n)
			}
		}
		if h.renewing && h.awake%time.Second == 0 {
			h.g.Renew(h.awake + h.slept)
		}
	}
}

// TestPermitsLapse: each case is a history of the host, of the process that has
// the gate (the core) and of the one that renews its permits (the scheduler).
func TestPermitsLapse(t *testing.T) {
	wait := func(d time.Duration) func(*host) { return func(h *host) { h.run(d) } }
	renew := func(on bool) func(*host) { return func(h *host) { h.renewing = on } }
	sleep := func(d time.Duration) func(*host) { return func(h *host) { h.slept += d } }
	stop := func(d time.Duration) func(*host) { // the core
		return func(h *host) {
			h.stopped = true
			h.run(d)
			h.stopped = false
		}
	}
	for _, tt := range []struct {
		name    string
		history []func(*host)
		lapses  bool
	}{
		{"renewed", []func(*host){wait(time.Hour)}, false},
		{"not renewed for almost as long as it may be", []func(*host){renew(false), wait(validity - 2*time.Second), renew(true), wait(time.Hour)}, false},
		{"not renewed", []func(*host){renew(false), wait(validity + time.Second)}, true},
		{"renewed too late", []func(*host){renew(false), wait(validity + time.Second), renew(true), wait(time.Hour)}, true},
		{"the host sleeps, then it is renewed", []func(*host){sleep(8 * time.Hour), wait(time.Hour)}, false},
		{"the host sleeps, and it is renewed late", []func(*host){renew(false), sleep(8 * time.Hour), wait(validity/2 - time.Second), renew(true), wait(time.Hour)}, false},
		{"the host sleeps, and it is not renewed", []func(*host){renew(false), sleep(8 * time.Hour), wait(validity/2 + 2*time.Second)}, true},
		{"time asleep counts", []func(*host){renew(false), wait(validity / 6), sleep(validity / 3 * 2), wait(validity/2 + 2*time.Second)}, true},
		{"a short sleep counts", []func(*host){renew(false), sleep(validity / 5), wait(validity - validity/5 + time.Second)}, true},
		{"it wakes now and then", slices.Concat(slices.Repeat([]func(*host){sleep(time.Hour), wait(2 * time.Second)}, 20), []func(*host){wait(time.Hour)}), false},
		{"both stand still", []func(*host){renew(false), stop(time.Hour), wait(2 * time.Second), renew(true), wait(time.Hour)}, false},
		{"the core stands still", []func(*host){stop(time.Hour), wait(time.Hour)}, false},
		{"both stand still, and the scheduler does not go on", []func(*host){renew(false), stop(time.Hour), wait(validity/2 + 2*time.Second)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := limits
			l.Validity = validity
			h := &host{g: permit.NewGate(l), renewing: true}
			h.g.Renew(0)
			p := mustRequest(t, h.g, request("a", 1, "shell"))
			if _, err := h.g.Use(p.ID, "a", 1); err != nil {
				t.Fatal(err)
			}
			h.run(time.Minute)
			for _, happens := range tt.history {
				happens(h)
			}
			if got := p.Context().Err() != nil; got != tt.lapses {
				t.Fatalf("lapsed is %t, want %t; cause %v", got, tt.lapses, context.Cause(p.Context()))
			}
			if tt.lapses && (!errors.Is(context.Cause(p.Context()), errLapsed) || !slices.Equal(h.lapsed, []int{1})) {
				t.Errorf("cause %v, lapsed %v; want %v, once", context.Cause(p.Context()), h.lapsed, errLapsed)
			}
			p.Settle(job.Usage{}, true)
		})
	}
}

// TestNoSleepEndsAPermit: however the host sleeps and both processes stand still,
// permits do not lapse as long as the scheduler renews them whenever it runs; and
// they do within one and a half times their validity once it does not any more.
func TestNoSleepEndsAPermit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limits
		l.Validity = time.Duration(rapid.IntRange(4, 600).Draw(t, "validity, seconds")) * time.Second
		h := &host{g: permit.NewGate(l), renewing: true}
		h.g.Renew(0)
		p, err := h.g.Request(context.Background(), request("a", 1, "shell"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Revoke(errors.New("the end"))
		h.run(2 * time.Second)
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			quarters := time.Duration(rapid.IntRange(1, 4000).Draw(t, "quarters of a second")) * time.Second / 4
			switch rapid.SampledFrom([]string{"sleep", "run", "core stops", "both stop"}).Draw(t, "event") {
			case "sleep":
				h.slept += quarters
				h.run(time.Second) // shorter than a heartbeat's interval it is not awake
			case "run":
				h.run(quarters)
			case "core stops":
				h.stopped = true
				h.run(quarters)
				h.stopped = false
			case "both stop":
				h.stopped, h.renewing = true, false
				h.run(quarters)
				h.stopped, h.renewing = false, true
				h.run(time.Second)
			}
			if len(h.lapsed) > 0 {
				t.Fatal("a permit lapsed that was renewed whenever the scheduler ran")
			}
		}
		h.renewing = false
		if h.run(l.Validity*3/2 + 2*time.Second); len(h.lapsed) != 1 {
			t.Fatalf("lapsed %v times, want once", h.lapsed)
		}
	})
}

// TestLapsedGate: a gate whose permits have lapsed gives out none before it hears
// of the scheduler again. What they held comes back when their runs have ended,
// not before, and a renewal revives none.
func TestLapsedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limits
		l.Validity = validity
		g := permit.NewGate(l)
		g.Renew(0)
		used, unused := mustRequest(t, g, request("a", 1, "shell")), mustRequest(t, g, request("b", 1, "codex"))
		if _, err := g.Use(used.ID, "a", 1); err != nil {
			t.Fatal(err)
		}
		for at := time.Duration(0); at < validity; at += time.Second {
			if n := g.Lapse(at, errLapsed); n != 0 {
				t.Fatalf("%d permits have lapsed after %s", n, at)
			}
		}
		if n := g.Lapse(validity, errLapsed); n != 2 {
			t.Fatalf("%d permits have lapsed, want 2", n)
		}
		if n := g.Lapse(validity+time.Second, errLapsed); n != 0 {
			t.Fatalf("%d permits have lapsed again", n)
		}
		if _, err := g.Use(unused.ID, "b", 1); !errors.Is(err, permit.ErrUnknown) {
			t.Errorf("use of a lapsed permit: %v", err)
		}
		if r := wantRejection(t, g, request("c", 1, "codex"), job.RateLimited); r.Waiting != job.WaitPermit {
			t.Errorf("the request waits for %q, want %q", r.Waiting, job.WaitPermit)
		}
		g.Renew(validity + 2*time.Second)
		if used.Context().Err() == nil {
			t.Error("the renewal has revived a permit")
		}
		other := mustRequest(t, g, request("b", 2, "codex"))
		if r := wantRejection(t, g, request("c", 1, "shell"), job.RateLimited); r.Waiting != job.WaitSlot {
			t.Errorf("while the lapsed run is being stopped, a request waits for %q, want %q", r.Waiting, job.WaitSlot)
		}
		used.Settle(job.Usage{}, true)
		again := mustRequest(t, g, request("a", 2, "shell"))
		for _, p := range []*permit.Permit{other, again} {
			p.Revoke(errors.New("the end"))
		}
	})
}

// TestNothingLapses: without a validity, before the first renewal, and in a gate
// that is closed, since what runs is being stopped already.
func TestNothingLapses(t *testing.T) {
	without := limits
	with := without
	with.Validity = validity
	for name, configure := range map[string]func(*permit.Gate){
		"no validity": func(g *permit.Gate) { g.Renew(0) },
		"not any more": func(g *permit.Gate) {
			g.Configure(with)
			g.Renew(0)
			g.Lapse(validity, errLapsed)
			g.Configure(without)
		},
		"not renewed since there is one": func(g *permit.Gate) {
			g.Renew(time.Second)
			g.Configure(with)
		},
		"closed": func(g *permit.Gate) {
			g.Configure(with)
			g.Renew(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := permit.NewGate(without)
			configure(g)
			p := mustRequest(t, g, request("a", 1, "shell"))
			if name == "closed" {
				g.Close(&permit.Rejection{Reason: job.FatalMode})
			}
			for at := time.Duration(0); at < time.Hour; at += time.Second {
				if n := g.Lapse(at, errLapsed); n > 0 {
					t.Fatalf("%d permits have lapsed after %s", n, at)
				}
			}
			p.Revoke(errors.New("the end"))
		})
	}
}

// TestFinishOnPartition: a permit in use whose job may finish on a partition neither lapses nor is voided. One that was not
// used yet lapses, and none is given out before the next renewal.
func TestFinishOnPartition(t *testing.T) {
	for name, end := range map[string]func(*permit.Gate) int{
		"lapsed": func(g *permit.Gate) int { return g.Lapse(validity+time.Second, errLapsed) },
		"voided": func(g *permit.Gate) int { return g.Void(errLapsed) },
	} {
		t.Run(name, func(t *testing.T) {
			l := limits
			l.Validity = validity
			g := permit.NewGate(l)
			g.Lapse(time.Second, errLapsed)
			g.Renew(time.Second)
			finishing := func(id job.ID, kind job.WorkerKind) permit.Request {
				r := request(id, 1, kind)
				r.Limits.OnPartition = job.FinishOnPartition
				return r
			}
			goesOn := mustRequest(t, g, finishing("a", "codex"))
			if _, err := g.Use(goesOn.ID, "a", 1); err != nil {
				t.Fatal(err)
			}
			unused := mustRequest(t, g, finishing("b", "shell"))
			for at := time.Duration(0); at < validity+time.Second; at += time.Second {
				if n := g.Lapse(at, errLapsed); n > 0 {
					t.Fatalf("%d permits have lapsed after %s", n, at)
				}
			}
			if n := end(g); n != 1 || !errors.Is(context.Cause(unused.Context()), errLapsed) {
				t.Errorf("%d permits have lapsed, want the unused one; cause %v", n, context.Cause(unused.Context()))
			}
			if err := goesOn.Context().Err(); err != nil {
				t.Errorf("the permit in use has ended: %v", context.Cause(goesOn.Context()))
			}
			if !g.Lapsed() {
				t.Error("the gate does not say that permits have lapsed")
			}
			if n := end(g); n != 0 {
				t.Errorf("%d permits have lapsed again", n)
			}
			if r := wantRejection(t, g, finishing("c", "shell"), job.RateLimited); r.Waiting != job.WaitPermit {
				t.Errorf("the request waits for %q, want %q", r.Waiting, job.WaitPermit)
			}
			if g.Renew(3 * validity); g.Lapsed() || goesOn.Context().Err() != nil {
				t.Error("a renewal does not begin it again")
			}
			goesOn.Settle(job.Usage{}, false)
		})
	}
}
