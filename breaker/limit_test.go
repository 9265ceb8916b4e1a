package breaker_test

import (
	"testing"
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/job"
)

func TestRateLimitOpensUntilItsTime(t *testing.T) {
	tests := []struct {
		name   string
		choice job.Choice
		in     time.Duration // RetryAt from now; 0 is none
		key    breaker.Key   // what opens
		want   time.Duration
	}{
		{"of the model", gpt, time.Hour, gptKey, time.Hour},
		{"of the kind if no model is named", codex, time.Hour, codexKey, time.Hour},
		{"shorter than the open time", gpt, time.Second, gptKey, time.Second},
		{"time unknown", gpt, 0, gptKey, small.OpenFor.Std()},
		{"time passed", gpt, -time.Hour, gptKey, small.OpenFor.Std()},
		{"a misread header", gpt, 100 * 365 * 24 * time.Hour, gptKey, 31 * 24 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, small, func(b bench) {
				r := breaker.Result{Class: job.RateLimit}
				if tt.in != 0 {
					at := time.Now().Add(tt.in).Round(0)
					r.RetryAt = &at
				}
				b.allow(tt.choice).Settle(r)
				open := b.refused(tt.choice, tt.key, breaker.Open)
				if got := time.Until(open.RetryAt); got != tt.want {
					t.Errorf("open for %s, want %s", got, tt.want)
				}
				if tt.choice == gpt {
					b.counted(codexKey, 0, 0, 0)
					b.runs(mini, job.NoError) // others go on
				}
				time.Sleep(tt.want - time.Nanosecond)
				b.refused(tt.choice, tt.key, breaker.Open)
				time.Sleep(time.Nanosecond)

				// Whatever time this opening had, the next has its own.
				b.runs(tt.choice, job.Server)
				open = b.refused(tt.choice, tt.key, breaker.Open)
				if got := time.Until(open.RetryAt); got != small.OpenFor.Std() {
					t.Errorf("after a failed probe open for %s, want %s", got, small.OpenFor.Std())
				}
			})
		})
	}
}

func TestRateLimitOnlyLengthens(t *testing.T) {
	bubble(t, small, func(b bench) {
		tickets := []*breaker.Ticket{b.allow(gpt), b.allow(gpt), b.allow(gpt)}
		for i, hours := range []int{2, 1, 3} {
			at := time.Now().Add(time.Duration(hours) * time.Hour)
			tickets[i].Settle(breaker.Result{Class: job.RateLimit, RetryAt: &at})
			want := time.Duration(max(2, hours)) * time.Hour
			if got := time.Until(b.state(gptKey).OpenUntil); got != want {
				t.Errorf("after one of %dh open for %s, want %s", hours, got, want)
			}
		}
		if got := b.changes(); len(got) != 2 || got[1] != "codex:gpt-5 open→open" {
			t.Errorf("changes %q, want an opening and a longer one", got)
		}
	})
}

func TestRateLimitOfAProbe(t *testing.T) {
	cfg := small
	cfg.Probes = 2
	bubble(t, cfg, func(b bench) {
		b.set.Trip(gptKey, time.Now().Add(time.Second), "a test")
		time.Sleep(time.Second)
		one, two := b.allow(gpt), b.allow(gpt)
		at := time.Now().Add(time.Hour)
		one.Settle(breaker.Result{Class: job.RateLimit, RetryAt: &at})
		two.Settle(breaker.Result{})
		if got := time.Until(b.refused(gpt, gptKey, breaker.Open).RetryAt); got != time.Hour {
			t.Errorf("open for %s, want 1h", got)
		}
	})
}
