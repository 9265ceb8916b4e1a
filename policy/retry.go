package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/agentsched/agentsched/job"
)

// Retry decides what follows an attempt. Its zero value is not useful; see NewRetry.
type Retry struct {
	// Rules hold for every job, but for those of a domain that has a whole table
	// of its own in Domains (see Tables).
	Rules   Rules
	Domains map[string]Rules
	// Base and Max bound the backoff: after the n-th attempt that counts, the
	// delay is uniform in [0, min(Max, Base·2ⁿ⁻¹)] ("full jitter": M. Brooker,
	// Exponential Backoff and Jitter, AWS Architecture Blog, 2015).
	Base, Max time.Duration
	// Random returns the next number of a uniform distribution over [0, 1).
	Random func() float64
}

// NewRetry returns a Retry with the default rules and domains.
func NewRetry(base, max time.Duration, random func() float64) *Retry {
	rules := DefaultRules()
	domains, err := Tables(rules, nil)
	if err != nil {
		panic(fmt.Sprintf("policy: the default domains: %v", err)) // a test would fail
	}
	return &Retry{Rules: rules, Domains: domains, Base: base, Max: max, Random: random}
}

// History is what is known of a job when an attempt has ended.
type History struct {
	Choices     int // how many workers the job may run on
	Choice      int // index of the one that ran
	Counted     int // attempts that count, this one included
	MaxAttempts int
	Resumed     bool   // this attempt resumed a session
	Forgiven    bool   // this attempt does not count: none is used up, and the delay is that of a first one
	Final       bool   // another attempt has nothing left to do: there is none after a failure
	Domain      string // of the job; "" and unknown ones have the rules of all
}

// Decision is what shall happen to the job.
type Decision struct {
	// Exit is how the job ends, or "" if it gets another attempt.
	Exit       job.ExitKind
	DeadLetter string // with ExitFailed: why there is no further attempt
	Escalated  bool   // with ExitFailed: it could be tried again, but a person is to decide that

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
	rule := r.rule(h.Domain, o.Class)
	next, more := h.Choice+1, h.Choice+1 < h.Choices
	if h.Forgiven {
		h.Counted = 1 // the least, for the delays
	}
	switch {
	case h.Final:
		return giveUp(o, "another attempt would have nothing left to do")
	case h.MaxAttempts > 0 && h.Counted >= h.MaxAttempts && !h.Forgiven:
		return giveUp(o, job.UsedUp(h.MaxAttempts))
	case rule.Action.fallsBack() && more:
		return r.fallBack(o, next, now)
	case rule.Action.ends() && !(rule.Afresh && h.Resumed && !progressed(o)):
		d := giveUp(o, r.whyNot(h.Domain, o.Class))
		d.Escalated = !DefaultRules().of(o.Class).Action.ends()
		return d
	case more && usedUp(o, now):
		return r.fallBack(o, next, now) // nothing of this kind runs before the reset
	}
	d := Decision{RunnableAt: now, Choice: h.Choice}
	// A session that led nowhere is not tried twice: it may itself be what fails.
	d.Resume = rule.resumes() && o.Session != "" && (progressed(o) || !h.Resumed)
	if rule.Action == DoFeedback || rule.Action.fallsBack() && aboutTheAnswer(o.Class) {
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

// rule returns what is done about a class in a domain.
func (r *Retry) rule(domain string, c job.ErrorClass) Rule {
	if t, ok := r.Domains[domain]; ok {
		return t.of(c)
	}
	return r.Rules.of(c)
}

// fallBack goes on with the next worker, which is told what was wrong with the
// work of this one.
func (r *Retry) fallBack(o *job.Outcome, next int, now time.Time) Decision {
	d := Decision{RunnableAt: now, Choice: next, Waiting: fmt.Sprintf("%s; goes on with the next worker", o.Class)}
	if aboutTheAnswer(o.Class) {
		d.Feedback = o.Message
	}
	return d
}

// aboutTheAnswer reports whether a failure of the class tells what the work
// lacks, rather than what became of the worker.
func aboutTheAnswer(c job.ErrorClass) bool {
	return c == job.InvalidOutput || c == job.ConflictClass || c == job.VerifyFailed || c == job.HumanRejected
}

// giveUp says what the last attempt failed with and why there is no other.
func giveUp(o *job.Outcome, why string) Decision {
	return Decision{Exit: job.ExitFailed, DeadLetter: fmt.Sprintf("%s: %s; %s", o.Class, firstLine(o.Message), why)}
}

// whyNot says why a job is given up that had attempts left.
func (r *Retry) whyNot(domain string, c job.ErrorClass) string {
	_, own := r.Domains[domain]
	switch {
	case DefaultRules().of(c).Action.ends():
		return "trying again does not help"
	case own && !r.Rules.of(c).Action.ends():
		return fmt.Sprintf("in the domain %s a person decides what follows", domain)
	}
	return "a person decides what follows"
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
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
