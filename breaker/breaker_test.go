package breaker_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/job"
)

// TestLifeOfABreaker goes round the circle once.
func TestLifeOfABreaker(t *testing.T) {
	bubble(t, small, func(b bench) {
		b.runs(codex, job.NoError, job.Crash)
		b.is(codexKey, breaker.Closed) // half failed, but of two
		b.runs(codex, job.Crash)
		open := b.refused(codex, codexKey, breaker.Open)
		if want := time.Now().Add(small.OpenFor.Std()); !open.RetryAt.Equal(want) {
			t.Errorf("retry at %v, want %v", open.RetryAt, want)
		}
		if !strings.Contains(open.Error(), "2 of 3 attempts failed within 10s, the last with CRASH") {
			t.Errorf("error %q does not say what failed", open)
		}

		time.Sleep(small.OpenFor.Std() - time.Nanosecond)
		b.refused(codex, codexKey, breaker.Open)
		time.Sleep(time.Nanosecond) // at the very time that RetryAt named
		probe := b.allow(codex)
		b.refused(codex, codexKey, breaker.HalfOpen)
		probe.Settle(breaker.Result{Class: job.Crash})
		again := b.refused(codex, codexKey, breaker.Open)
		if want := time.Now().Add(small.OpenFor.Std()); !again.RetryAt.Equal(want) {
			t.Errorf("after a failed probe retry at %v, want %v", again.RetryAt, want)
		}

		time.Sleep(small.OpenFor.Std())
		b.runs(codex, job.NoError)
		b.is(codexKey, breaker.Closed)
		b.counted(codexKey, 0, 0, 0)
		want := []string{
			"codex closed→open", "codex open→half-open", "codex half-open→open", "codex open→half-open", "codex half-open→closed",
		}
		if got := b.changes(); !slices.Equal(got, want) {
			t.Errorf("changes %q, want %q", got, want)
		}
	})
}

// TestEndCountsWhenItComes: gobreaker by itself would forget an attempt that
// ran longer than the window, as agents do.
func TestEndCountsWhenItComes(t *testing.T) {
	bubble(t, small, func(b bench) {
		var tickets []*breaker.Ticket
		for range 3 {
			tickets = append(tickets, b.allow(codex))
		}
		time.Sleep(10 * small.Window.Std())
		for _, ticket := range tickets {
			ticket.Settle(breaker.Result{Class: job.Timeout})
		}
		b.is(codexKey, breaker.Open)
	})
}

func TestWindowRolls(t *testing.T) {
	bubble(t, small, func(b bench) {
		b.runs(codex, job.Crash, job.Crash)
		time.Sleep(small.Window.Std() - small.BucketPeriod.Std())
		b.runs(codex, job.NoError)
		b.counted(codexKey, 3, 2, 0)
		time.Sleep(small.BucketPeriod.Std()) // the failures leave, nobody asks meanwhile
		b.counted(codexKey, 1, 0, 0)
		b.runs(codex, job.Crash)
		b.is(codexKey, breaker.Closed)
	})
}

// TestRunningAttemptsAreNotRequests: they must neither dilute the ratio nor
// reach the minimum.
func TestRunningAttemptsAreNotRequests(t *testing.T) {
	bubble(t, small, func(b bench) {
		for range 10 {
			b.allow(codex)
		}
		b.runs(codex, job.Crash, job.Crash)
		b.is(codexKey, breaker.Closed)
		b.runs(codex, job.Crash)
		b.is(codexKey, breaker.Open)
	})
}

func TestProbesThatSayNothingFreeTheirSlot(t *testing.T) {
	ends := map[string]func(*breaker.Ticket){
		"discarded":      (*breaker.Ticket).Discard,
		"cancelled":      func(t *breaker.Ticket) { t.Settle(breaker.Result{Class: job.CancelledClass}) },
		"says nothing":   func(t *breaker.Ticket) { t.Settle(breaker.Result{Class: job.Unknown}) },
		"unknown class":  func(t *breaker.Ticket) { t.Settle(breaker.Result{Class: "OF_TOMORROW"}) },
		"discarded, and": func(t *breaker.Ticket) { t.Discard(); t.Discard(); t.Settle(breaker.Result{Class: job.Crash}) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, small, func(b bench) {
				b.set.Trip(codexKey, time.Now().Add(time.Second), "a test")
				time.Sleep(time.Second)
				for range 5 {
					probe := b.allow(codex)
					b.refused(codex, codexKey, breaker.HalfOpen)
					end(probe)
				}
				b.is(codexKey, breaker.HalfOpen)
				b.runs(codex, job.NoError)
				b.is(codexKey, breaker.Closed)
			})
		})
	}
}

func TestSeveralProbes(t *testing.T) {
	cfg := small
	cfg.Probes = 3
	bubble(t, cfg, func(b bench) {
		b.set.Trip(codexKey, time.Now().Add(time.Second), "a test")
		time.Sleep(time.Second)
		one, two, three := b.allow(codex), b.allow(codex), b.allow(codex)
		b.refused(codex, codexKey, breaker.HalfOpen)
		one.Settle(breaker.Result{})
		two.Settle(breaker.Result{})
		b.is(codexKey, breaker.HalfOpen)
		b.refused(codex, codexKey, breaker.HalfOpen) // what succeeded keeps its slot
		three.Settle(breaker.Result{})
		b.is(codexKey, breaker.Closed)
	})
}

// TestLateEndsAreIgnored: an attempt that was allowed before the breaker
// opened or closed does not judge what came after.
func TestLateEndsAreIgnored(t *testing.T) {
	bubble(t, small, func(b bench) {
		var late []*breaker.Ticket
		for range 4 {
			late = append(late, b.allow(codex))
		}
		b.runs(codex, job.Crash, job.Crash, job.Crash)
		time.Sleep(small.OpenFor.Std())
		probe := b.allow(codex)
		late[0].Settle(breaker.Result{})                 // does not close
		late[1].Settle(breaker.Result{Class: job.Crash}) // does not open
		late[2].Discard()                                // does not free the probe's slot
		b.refused(codex, codexKey, breaker.HalfOpen)
		probe.Settle(breaker.Result{})
		late[3].Settle(breaker.Result{Class: job.Crash})
		b.counted(codexKey, 0, 0, 0)
	})
}

func TestTicketEndsOnce(t *testing.T) {
	bubble(t, small, func(b bench) {
		ticket := b.allow(codex)
		for range 5 {
			ticket.Settle(breaker.Result{Class: job.Crash})
			ticket.Discard()
		}
		b.counted(codexKey, 1, 1, 0)
	})
}

func TestSlowSuccesses(t *testing.T) {
	cfg := small
	cfg.SlowAfter, cfg.SlowRatio = job.Duration(time.Minute), 0.5
	bubble(t, cfg, func(b bench) {
		end := func(class job.ErrorClass, took time.Duration) {
			b.allow(codex).Settle(breaker.Result{Class: class, Took: took})
		}
		end(job.NoError, time.Minute) // not longer than it
		end(job.NoError, time.Minute+1)
		end(job.Crash, time.Hour) // a failure, not a slow success
		b.counted(codexKey, 3, 1, 1)
		end(job.NoError, time.Hour)
		open := b.refused(codex, codexKey, breaker.Open)
		if want := "2 of 4 attempts took longer than 1m0s within 10s"; open.Cause != want {
			t.Errorf("cause %q, want %q", open.Cause, want)
		}
		time.Sleep(cfg.OpenFor.Std())
		end(job.NoError, time.Hour) // the probe is as slow
		b.is(codexKey, breaker.Open)
		time.Sleep(cfg.OpenFor.Std())
		end(job.NoError, time.Second)
		b.is(codexKey, breaker.Closed)
		b.counted(codexKey, 0, 0, 0)
	})
	bubble(t, small, func(b bench) { // off
		for range 10 {
			b.allow(codex).Settle(breaker.Result{Took: 1000 * time.Hour})
		}
		b.counted(codexKey, 10, 0, 0)
	})
}

func TestAllOrNone(t *testing.T) {
	bubble(t, small, func(b bench) {
		b.set.Trip(codexKey, time.Now().Add(time.Second), "a test")
		b.set.Trip(gptKey, time.Now().Add(time.Minute), "a test")
		b.refused(gpt, codexKey, breaker.Open)
		time.Sleep(time.Second)
		b.refused(gpt, gptKey, breaker.Open) // and the kind's only probe was not taken
		b.runs(mini, job.NoError)
		b.is(codexKey, breaker.Closed)
		b.refused(gpt, gptKey, breaker.Open)
		time.Sleep(time.Minute)
		b.runs(gpt, job.NoError)
		b.is(gptKey, breaker.Closed)
	})
}
