package permit_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// TestNothingLeaks plays random histories of requests, uses, revocations,
// settlements and waiting against a model that only counts: no limit is ever
// exceeded, and whatever was reserved is released exactly once.
func TestNothingLeaks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// The history is drawn before the bubble: rapid's own goroutines are not of it.
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 60).Draw(rt, "steps")
		synctest.Test(t, func(*testing.T) { play(rt, steps) })
	})
}

type step struct {
	op    string
	which int // of the permits that there are
	kind  job.WorkerKind
	fail  bool // the reservation fails
	wait  time.Duration
}

func drawStep(t *rapid.T) step {
	return step{
		op:    rapid.SampledFrom([]string{"request", "request", "request", "use", "use", "revoke", "settle", "settle", "wait"}).Draw(t, "op"),
		which: rapid.IntRange(0, 7).Draw(t, "which"),
		kind:  rapid.SampledFrom([]job.WorkerKind{"codex", "claude", "shell"}).Draw(t, "kind"),
		fail:  rapid.IntRange(0, 9).Draw(t, "fail") == 0,
		wait:  time.Duration(rapid.IntRange(1, 6000).Draw(t, "wait")) * time.Millisecond,
	}
}

type held struct {
	permit   *permit.Permit
	kind     job.WorkerKind
	used     bool
	released atomic.Int32
}

func play(t *rapid.T, steps []step) {
	bound := permit.Limits{MaxConcurrent: 4, PerKind: map[job.WorkerKind]int{"codex": 1, "claude": 2}, TTL: 5 * time.Second}
	g := permit.NewGate(bound)
	var all []*held
	for i, s := range steps {
		switch s.op {
		case "request":
			h := &held{kind: s.kind}
			p, err := g.Request(context.Background(), permit.Request{
				Job: job.ID(fmt.Sprint(i)), Attempt: 1, Choice: job.Choice{Worker: s.kind},
				Reserve: func() (func(), error) {
					if s.fail {
						return nil, errors.New("reservation failed")
					}
					return func() { h.released.Add(1) }, nil
				},
			})
			if err == nil {
				h.permit = p
				all = append(all, h)
			}
		case "wait":
			time.Sleep(s.wait)
			synctest.Wait()
		default:
			if len(all) == 0 {
				continue
			}
			h := all[s.which%len(all)]
			switch s.op {
			case "use":
				if _, err := g.Use(h.permit.ID, h.permit.Job, 1); err == nil {
					if h.used || h.released.Load() > 0 {
						t.Fatalf("step %d: a used or ended permit could be used", i)
					}
					h.used = true
				}
			case "revoke":
				h.permit.Revoke(errors.New("revoked"))
			case "settle":
				if h.used {
					h.permit.Settle(job.Usage{}, false)
				}
			}
		}
		check(t, g, bound, all, i)
	}
	for _, h := range all {
		h.permit.Revoke(errors.New("the end"))
		if h.used {
			h.permit.Settle(job.Usage{}, false)
		}
		if h.released.Load() != 1 {
			t.Fatalf("permit %s was released %d times", h.permit.ID, h.released.Load())
		}
	}
	if unused, running := g.Counts(); unused+running != 0 {
		t.Fatalf("%d unused and %d running permits are left", unused, running)
	}
}

func check(t *rapid.T, g *permit.Gate, bound permit.Limits, all []*held, i int) {
	live, perKind := 0, map[job.WorkerKind]int{}
	for _, h := range all {
		if h.released.Load() > 1 {
			t.Fatalf("step %d: released %d times", i, h.released.Load())
		}
		if h.released.Load() == 0 {
			live++
			perKind[h.kind]++
		}
	}
	unused, running := g.Counts()
	if unused+running != live {
		t.Fatalf("step %d: the gate counts %d, held are %d", i, unused+running, live)
	}
	if live > bound.MaxConcurrent {
		t.Fatalf("step %d: %d permits, at most %d are allowed", i, live, bound.MaxConcurrent)
	}
	for kind, limit := range bound.PerKind {
		if perKind[kind] > limit {
			t.Fatalf("step %d: %d permits of %s, at most %d are allowed", i, perKind[kind], kind, limit)
		}
	}
}
