package permit

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Rejection is a refusal. Gate.Request lists who refuses with which reason. A caller finds
// it with errors.As, and branches on Reason, never on Message.
type Rejection struct {
	Reason job.Reason
	// RetryAfter is when to ask again: zero if Reason is terminal, else a whole number of
	// milliseconds, 1 or more. Asking earlier is useless, unless a run ends before.
	RetryAfter time.Duration
	Message    string // the reason in a sentence, never empty
	Action     Action // what to do with the job; "" if neither a Defence nor Throttle refuses
	// Waiting is what the job waits for, where Reason leaves that open; else "".
	Waiting job.WaitingReason
}

// Action is what an overloaded host asks to be done with a job: one of package ipc's
// actions.
type Action string

// ActionDefer: ask again after RetryAfter. Throttle refuses with it; the others are those
// of a Defence.
const ActionDefer Action = "defer"

// Error returns "REASON: message".
func (r *Rejection) Error() string { return string(r.Reason) + ": " + r.Message }

// slotRetry is when to ask again for a slot. The scheduler also asks when one of its runs
// ends, so this bounds the wait only if a run of another scheduler's core ends. It is
// also the time of a rejection from outside that has none.
const slotRetry = time.Second

func exceeded(format string, args ...any) *Rejection {
	return &Rejection{Reason: job.LimitExceeded, Message: fmt.Sprintf(format, args...)}
}

func limited(by job.WaitingReason, after time.Duration, format string, args ...any) *Rejection {
	return &Rejection{Reason: job.RateLimited, RetryAfter: after, Message: fmt.Sprintf(format, args...), Waiting: by}
}

// later returns the rejection with the longer RetryAfter: asking again sooner would be
// useless. nil is no rejection.
func later(a, b *Rejection) *Rejection {
	if a == nil || b != nil && b.RetryAfter > a.RetryAfter {
		return b
	}
	return a
}

// complete gives a rejection in err, which may come from outside the gate, what Rejection
// documents: a sentence, and a time unless the reason is terminal. The time is rounded up
// to the wire's milliseconds, so that it is never too early. Other errors stay as they are.
func complete(err error) error {
	var made *Rejection
	if !errors.As(err, &made) {
		return err
	}
	r := *made
	switch {
	case r.Reason.Terminal():
		r.RetryAfter = 0
	case r.RetryAfter <= 0:
		r.RetryAfter = slotRetry
	default:
		if rest := r.RetryAfter % time.Millisecond; rest > 0 {
			r.RetryAfter += time.Millisecond - rest
		}
	}
	if r.Message == "" {
		r.Message = "refused; no reason given"
	}
	return &r
}
