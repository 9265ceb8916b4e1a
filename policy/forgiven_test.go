package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

// TestForgiven: an attempt that is forgiven uses up none, however many there were,
// and is followed as soon as a first one; after one that is final there is none.
func TestForgiven(t *testing.T) {
	r := NewRetry(time.Second, time.Hour, func() float64 { return 1 })
	now := time.Unix(1000, 0)
	o := &job.Outcome{State: job.RunFailed, Class: job.Crash, Message: "it died"}
	if d := r.Decide(History{Choices: 1, Counted: 3, MaxAttempts: 3}, o, now); d.Exit != job.ExitFailed {
		t.Errorf("the last attempt has failed: %+v", d)
	}
	first := r.Decide(History{Choices: 1, Counted: 1, MaxAttempts: 3}, o, now)
	if d := r.Decide(History{Choices: 1, Counted: 3, MaxAttempts: 3, Forgiven: true}, o, now); d != first {
		t.Errorf("forgiven: %+v, want what follows a first attempt: %+v", d, first)
	}
	d := r.Decide(History{Choices: 2, Counted: 1, MaxAttempts: 3, Final: true}, o, now)
	if d.Exit != job.ExitFailed || !strings.Contains(d.DeadLetter, "nothing left to do") || strings.Contains(d.DeadLetter, "used up") {
		t.Errorf("final: %+v", d)
	}
}
