package breaker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/job"
)

// configs are what a history is played under; it may change from one to the other.
var configs = []breaker.Config{
	{
		Window: job.Duration(10 * time.Second), BucketPeriod: job.Duration(2 * time.Second), MinRequests: 2, FailureRatio: 0.5,
		SlowAfter: job.Duration(5 * time.Second), SlowRatio: 0.7, OpenFor: job.Duration(7 * time.Second), Probes: 2,
	},
	{
		Window: job.Duration(9 * time.Second), BucketPeriod: job.Duration(3 * time.Second), MinRequests: 3, FailureRatio: 0.9,
		OpenFor: job.Duration(4 * time.Second), Probes: 3,
	},
}

// TestAgainstOracle plays random histories on a set and on the oracle, which
// keeps lists instead of counters and knows no gobreaker: they agree on every
// answer, and on every state whenever it is looked at.
func TestAgainstOracle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// The history is drawn before the bubble: rapid's own goroutines are not of it.
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 30, 300).Draw(rt, "steps")
		if got := inBubble(t, steps); got != "" {
			rt.Fatal(string(got))
		}
	})
}

// disagreement is what a history panics with: rapid's own Fatal works only on
// the goroutine that it knows, which is not the bubble's.
type disagreement string

func disagree(format string, args ...any) { panic(disagreement(fmt.Sprintf(format, args...))) }

func inBubble(t *testing.T, steps []step) (found disagreement) {
	synctest.Test(t, func(*testing.T) {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case disagreement:
				found = r
			default:
				panic(r)
			}
		}()
		play(steps)
	})
	return found
}

type step struct {
	op     string
	which  int // of the tickets that are out
	choice job.Choice
	class  job.ErrorClass
	took   time.Duration
	wait   time.Duration // of a wait, and until when a provider or the watchdog says
	look   bool          // compare all states afterwards
}

func drawStep(t *rapid.T) step {
	ops := []string{
		"allow", "allow", "allow", "allow", "allow", "settle", "settle", "settle", "settle", "discard", "wait", "wait",
		"trip", "reset", "restore", "configure",
	}
	classes := []job.ErrorClass{
		job.NoError, job.NoError, job.NoError, job.Server, job.Server, job.Crash, job.RateLimit, job.Unknown,
	}
	return step{
		op:    rapid.SampledFrom(ops).Draw(t, "op"),
		which: rapid.IntRange(0, 9).Draw(t, "which"),
		choice: job.Choice{
			Worker: rapid.SampledFrom([]job.WorkerKind{"codex", "codex", "claude"}).Draw(t, "worker"),
			Model:  rapid.SampledFrom([]string{"", "gpt-5", "mini"}).Draw(t, "model"),
		},
		class: rapid.SampledFrom(classes).Draw(t, "class"),
		took:  time.Duration(rapid.IntRange(0, 9).Draw(t, "took")) * time.Second,
		wait:  time.Duration(rapid.IntRange(-1000, 9000).Draw(t, "wait")) * time.Millisecond,
		look:  rapid.IntRange(0, 2).Draw(t, "look") == 0,
	}
}

// both is a ticket and what the oracle gave for it.
type both struct {
	choice job.Choice
	ticket *breaker.Ticket
	passes map[breaker.Key]*oraclePass
}

func play(steps []step) {
	cfg := configs[0]
	set := breaker.NewSet(cfg, zerolog.Nop())
	o := oracle{}
	var out []both
	for i, s := range steps {
		now := time.Now()
		at := now.Add(s.wait)
		key := breaker.Key{Worker: s.choice.Worker, Model: s.choice.Model}
		switch s.op {
		case "allow":
			ticket, err := set.Allow(s.choice)
			passes, refuses := o.allow(s.choice, cfg, now)
			var open *breaker.OpenError
			switch {
			case errors.As(err, &open) && (open.Key != refuses || !open.RetryAt.After(now)):
				disagree("step %d: %s refuses (%v), the oracle says %s", i, open.Key, open, refuses)
			case (err != nil) != (passes == nil):
				disagree("step %d: allow %v: error %v, the oracle's refusal %q", i, s.choice, err, refuses)
			case err == nil:
				out = append(out, both{s.choice, ticket, passes})
			}
		case "settle", "discard":
			if len(out) == 0 {
				continue
			}
			n := s.which % len(out)
			b := out[n]
			out = append(out[:n], out[n+1:]...)
			if s.op == "discard" {
				b.ticket.Discard()
				o.settle(b, job.CancelledClass, 0, at, cfg, now)
			} else {
				b.ticket.Settle(breaker.Result{Class: s.class, Took: s.took, RetryAt: &at})
				o.settle(b, s.class, s.took, at, cfg, now)
			}
			b.ticket.Settle(breaker.Result{Class: job.Crash}) // has no effect
		case "wait":
			time.Sleep(s.wait)
		case "trip":
			set.Trip(key, at, "a test")
			o.of(key, now).open(at, cfg, now)
		case "reset":
			set.Reset(key)
			if b := o[key]; b != nil {
				b.close(now)
			}
		case "restore":
			set = restored(set, cfg)
			o.restart(cfg)
			out = nil                    // they died with the core
			time.Sleep(time.Millisecond) // half-open follows the restart by a moment
		case "configure":
			next := configs[s.which%len(configs)]
			if err := set.Configure(next); err != nil {
				disagree("%v", err)
			}
			if next != cfg { // the same again changes nothing
				o.configure(next, now)
			}
			cfg = next
		}
		o.checkProbes(out, i)
		if s.look {
			o.compare(set.Snapshot(), cfg, i)
		}
	}
	// Whatever happened, with everything ended and every open time over, each breaker heals.
	for _, b := range out {
		b.ticket.Discard()
	}
	time.Sleep(time.Minute)
	for _, state := range set.Snapshot() {
		for range 10 {
			ticket, err := set.Allow(job.Choice{Worker: state.Worker, Model: state.Model})
			if err != nil {
				disagree("at the end %s: %v", state, err)
			}
			ticket.Settle(breaker.Result{})
		}
	}
	for _, state := range set.Snapshot() {
		if state.State != breaker.Closed {
			disagree("at the end, all well: %s", state)
		}
	}
}

// restored returns a set as the next core has it.
func restored(set *breaker.Set, cfg breaker.Config) *breaker.Set {
	text, err := json.Marshal(set.Snapshot())
	if err != nil {
		disagree("%v", err)
	}
	var states []breaker.State
	if err := json.Unmarshal(text, &states); err != nil {
		disagree("%v", err)
	}
	next := breaker.NewSet(cfg, zerolog.Nop())
	if err := next.Restore(states); err != nil {
		disagree("%v", err)
	}
	return next
}
