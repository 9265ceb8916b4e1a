package policy_test

import (
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	later := now.Add(time.Minute)
	tests := []struct {
		name    string
		history policy.History
		outcome job.Outcome
		want    policy.Decision
	}{
		{"success ends", policy.History{Choices: 1, Counted: 1, MaxAttempts: 3},
			job.Outcome{State: job.RunCompleted}, policy.Decision{Exit: job.ExitSucceeded}},
		{"cancel ends", policy.History{Choices: 1, Counted: 1, MaxAttempts: 3},
			job.Outcome{State: job.RunCancelled, Class: job.CancelledClass}, policy.Decision{Exit: job.ExitCancelled}},
		{"auth does not heal", policy.History{Choices: 1, Counted: 1, MaxAttempts: 3},
			job.Outcome{State: job.RunFailed, Class: job.Auth, Message: "bad key\nmore"},
			policy.Decision{Exit: job.ExitFailed, DeadLetter: "AUTH: bad key; trying again does not help"}},
		{"auth falls back", policy.History{Choices: 2, Counted: 1, MaxAttempts: 3},
			job.Outcome{State: job.RunFailed, Class: job.Auth},
			policy.Decision{RunnableAt: now, Choice: 1, Waiting: "AUTH; goes on with the next worker"}},
		{"attempts used up", policy.History{Choices: 2, Counted: 3, MaxAttempts: 3},
			job.Outcome{State: job.RunFailed, Class: job.Server, Message: "boom"},
			policy.Decision{Exit: job.ExitFailed, DeadLetter: "SERVER: boom; all 3 attempts are used up"}},
		{"rate limit waits for the reset", policy.History{Choices: 1, Counted: 1, MaxAttempts: 3},
			job.Outcome{State: job.RunFailed, Class: job.RateLimit, RetryAt: &later},
			policy.Decision{RunnableAt: later, Waiting: "RATE_LIMIT; next attempt after 1m0s"}},
		{"rate limit without a reset waits long", policy.History{Choices: 1, Counted: 2, MaxAttempts: 3},
			job.Outcome{State: job.RunFailed, Class: job.RateLimit},
			policy.Decision{RunnableAt: now.Add(31 * time.Second), Waiting: "RATE_LIMIT; next attempt after 31s"}},
		{"crash resumes the session", policy.History{Choices: 1, Counted: 1, MaxAttempts: 3},
			job.Outcome{State: job.RunFailed, Class: job.Crash, Session: "s"},
			policy.Decision{RunnableAt: now.Add(500 * time.Millisecond), Resume: true, Waiting: "CRASH; next attempt after 500ms"}},
		{"a resumed session without progress is dropped", policy.History{Choices: 1, Counted: 2, MaxAttempts: 3, Resumed: true},
			job.Outcome{State: job.RunFailed, Class: job.Config, Session: "s"},
			policy.Decision{RunnableAt: now.Add(time.Second), Waiting: "CONFIG; next attempt after 1s"}},
		{"verify gives feedback", policy.History{Choices: 1, Counted: 2, MaxAttempts: 3, Resumed: true},
			job.Outcome{State: job.RunFailed, Class: job.VerifyFailed, Session: "s", Message: "test failed", Usage: job.Usage{OutputTokens: 1}},
			policy.Decision{RunnableAt: now.Add(time.Second), Resume: true, Feedback: "test failed", Waiting: "VERIFY_FAILED; next attempt after 1s"}},
		{"exhaustion without fallback starts over", policy.History{Choices: 1, Counted: 1, MaxAttempts: 3},
			job.Outcome{State: job.RunFailed, Class: job.ResourceExhausted, Session: "s"},
			policy.Decision{RunnableAt: now.Add(500 * time.Millisecond), Waiting: "RESOURCE_EXHAUSTED; next attempt after 500ms"}},
		{"budget is final", policy.History{Choices: 2, Counted: 1, MaxAttempts: 3},
			job.Outcome{State: job.RunFailed, Class: job.Budget, Message: "too dear"},
			policy.Decision{Exit: job.ExitFailed, DeadLetter: "BUDGET: too dear; trying again does not help"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := policy.NewRetry(time.Second, 5*time.Minute, func() float64 { return 0.5 })
			if got := r.Decide(tt.history, &tt.outcome, now); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestDelayIsFullJitter checks the bounds of each delay: [0, min(Max, Base·2ⁿ⁻¹)].
func TestDelayIsFullJitter(t *testing.T) {
	const base, limit = time.Second, 5 * time.Minute
	for n := 1; n <= 100; n++ {
		bound := limit
		if n < 10 && base<<(n-1) < limit {
			bound = base << (n - 1)
		}
		for _, u := range []float64{0, 0.25, 0.999999} {
			r := policy.NewRetry(base, limit, func() float64 { return u })
			d := r.Decide(policy.History{Choices: 1, Counted: n}, &job.Outcome{State: job.RunFailed, Class: job.Server}, now)
			want := time.Duration(u * float64(bound))
			if got := d.RunnableAt.Sub(now); got != want {
				t.Fatalf("after attempt %d with draw %g: delay %s, want %s", n, u, got, want)
			}
		}
	}
}

func TestEveryClassHasARule(t *testing.T) {
	rules := policy.DefaultRules()
	for _, c := range job.ErrorClasses() {
		if _, ok := rules[c]; !ok {
			t.Errorf("class %s has no rule", c)
		}
	}
	if len(rules) != len(job.ErrorClasses()) {
		t.Errorf("%d rules for %d classes", len(rules), len(job.ErrorClasses()))
	}
}
