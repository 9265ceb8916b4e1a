package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/agentsched/agentsched/job"
)

// Rule says what heals a failure of one class.
type Rule struct {
	// Heals is false where another attempt of the same worker cannot help.
	Heals bool
	// Fallback moves on to the job's next worker, if it has one; a class that
	// does not heal then gets its chance there.
	Fallback bool
	// Resume lets the next attempt go on with the agent's own session.
	Resume bool
	// Feedback tells the next attempt why this one was not good enough.
	Feedback bool
	// AtOnce skips the backoff.
	AtOnce bool
	// Floor is the least delay, doubled with each attempt that counts, where
	// the provider named no time to come back at: what a second does not heal.
	Floor time.Duration
}

// DefaultRules is what is done about each class unless a table says otherwise.
func DefaultRules() map[job.ErrorClass]Rule {
	return map[job.ErrorClass]Rule{
		job.RateLimit:         {Heals: true, Resume: true, Floor: 15 * time.Second},
		job.Server:            {Heals: true, Resume: true},
		job.Network:           {Heals: true, Resume: true},
		job.Timeout:           {Heals: true, Resume: true},
		job.Stalled:           {Heals: true, Resume: true},
		job.Crash:             {Heals: true, Resume: true},
		job.InvalidOutput:     {Heals: true, Resume: true, Feedback: true},
		job.ResourceExhausted: {Heals: true, Fallback: true},
		job.Auth:              {Fallback: true},
		job.VerifyFailed:      {Heals: true, Resume: true, Feedback: true},
		job.HumanRejected:     {Heals: true, Resume: true, Feedback: true, AtOnce: true},
		job.Budget:            {},
		job.CancelledClass:    {},
		job.Config:            {Fallback: true},
		job.Unknown:           {Heals: true, Resume: true},
	}
}

// Retry decides what follows an attempt. Its zero value is not useful; see NewRetry.
type Retry struct {
	Rules map[job.ErrorClass]Rule
	// Base and Max bound the backoff: after the n-th attempt that counts, the
	// delay is uniform in [0, min(Max, Base·2ⁿ⁻¹)] ("full jitter": M. Brooker,
	// Exponential Backoff and Jitter, AWS Architecture Blog, 2015).
	Base, Max time.Duration
	// Random returns the next number of a uniform distribution over [0, 1).
	Random func() float64
}

// NewRetry returns a Retry with the default rules.
func NewRetry(base, max time.Duration, random func() float64) *Retry {
	return &Retry{Rules: DefaultRules(), Base: base, Max: max, Random: random}
}

// History is what is known of a job when an attempt has ended.
type History struct {
	Choices     int // how many workers the job may run on
	Choice      int // index of the one that ran
	Counted     int // attempts that count, this one included
	MaxAttempts int
	Resumed     bool // this attempt resumed a session
}

// Decision is what shall happen to the job.
type Decision struct {
	// Exit is how the job ends, or "" if it gets another attempt.
	Exit       job.ExitKind
	DeadLetter string // with ExitFailed: why there is no further attempt

	RunnableAt time.Time // of the next attempt
	Choice     int
	Resume     bool // with the session of this attempt
	Feedback   string
	Waiting    string // a sentence for the user
}

// Decide returns what follows an attempt that ended with o at now.
func (r *Retry) Decide(h History, o *job.Outcome, now time.Time) Decision {
	switch o.State {
	case job.RunCompleted:
		return Decision{Exit: job.ExitSucceeded}
	case job.RunCancelled:
		return Decision{Exit: job.ExitCancelled}
	}
	rule := r.Rules[o.Class]
	next, more := h.Choice+1, h.Choice+1 < h.Choices
	switch {
	case h.MaxAttempts > 0 && h.Counted >= h.MaxAttempts:
		return giveUp(o, fmt.Sprintf("all %d attempts are used up", h.MaxAttempts))
	case rule.Fallback && more:
		return Decision{RunnableAt: now, Choice: next, Waiting: fmt.Sprintf("%s; goes on with the next worker", o.Class)}
	case !rule.Heals && !(h.Resumed && !progressed(o)):
		return giveUp(o, "this does not heal by trying again")
	}
	d := Decision{RunnableAt: now, Choice: h.Choice}
	// A session that led nowhere is not tried twice: it may itself be what fails.
	d.Resume = rule.Resume && o.Session != "" && (progressed(o) || !h.Resumed)
	if rule.Feedback {
		d.Feedback = o.Message
	}
	if !rule.AtOnce {
		d.RunnableAt = now.Add(r.delay(h.Counted))
	}
	switch {
	case o.RetryAt == nil:
		d.RunnableAt = d.RunnableAt.Add(min(rule.Floor<<min(h.Counted-1, 10), r.Max))
	case o.RetryAt.After(d.RunnableAt):
		d.RunnableAt = *o.RetryAt
	}
	d.Waiting = fmt.Sprintf("%s; next attempt after %s", o.Class, d.RunnableAt.Sub(now).Round(time.Millisecond))
	return d
}

// giveUp says what the last attempt failed with and why there is no other.
func giveUp(o *job.Outcome, why string) Decision {
	what, _, _ := strings.Cut(o.Message, "\n")
	return Decision{Exit: job.ExitFailed, DeadLetter: fmt.Sprintf("%s: %s; %s", o.Class, what, why)}
}

// progressed reports whether the agent did anything in the attempt.
func progressed(o *job.Outcome) bool {
	return o.Usage.Tokens() > 0 || o.Usage.Steps > 0 || len(o.Commands) > 0
}

// delay draws the wait after the n-th attempt. backoff/v4 gives the upper
// bound (its own jitter is not "full", and its default of giving up after 15
// minutes is not ours); the draw is from the source that was passed in.
func (r *Retry) delay(n int) time.Duration {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(r.Base), backoff.WithMaxInterval(r.Max), backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0),
	)
	bound := b.NextBackOff()
	for range min(n, 64) - 1 {
		bound = b.NextBackOff()
	}
	return time.Duration(r.Random() * float64(bound))
}
