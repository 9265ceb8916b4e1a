package permit

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Rejection is a refusal.
type Rejection struct {
	Reason     job.Reason
	RetryAfter time.Duration // zero if the reason is terminal
	Message    string
	Action     Action // what backpressure asks for; "" if it is not what refuses
	// Waiting is what the job waits for, where Reason leaves that open; else "".
	Waiting job.WaitingReason
}

// Action is what an overloaded host asks to be done with a job, in the words of
// the wire.
type Action string

// ActionDefer: ask again after RetryAfter. A Defence has actions of its own.
const ActionDefer Action = "defer"

// Error returns the reason and the sentence.
func (r *Rejection) Error() string { return string(r.Reason) + ": " + r.Message }

// slotRetry is how soon to ask again for a slot: the scheduler also asks when
// one of its runs ends, so this only matters if somebody else's run does. It
// is also the time of a rejection that comes from outside without one.
const slotRetry = time.Second

func exceeded(format string, args ...any) *Rejection {
	return &Rejection{Reason: job.LimitExceeded, Message: fmt.Sprintf(format, args...)}
}

func limited(by job.WaitingReason, after time.Duration, format string, args ...any) *Rejection {
	return &Rejection{Reason: job.RateLimited, RetryAfter: after, Message: fmt.Sprintf(format, args...), Waiting: by}
}

// later returns the rejection that takes longer to heal: asking again sooner
// would be for nothing. nil is no rejection.
func later(a, b *Rejection) *Rejection {
	if a == nil || b != nil && b.RetryAfter > a.RetryAfter {
		return b
	}
	return a
}

// complete makes a rejection that is in err, whoever made it, keep the promise
// of all rejections: a sentence, and a time unless the reason is terminal. The
// time is rounded up to the wire's milliseconds, so that it is never too early.
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
		r.Message = "refused without a word of why"
	}
	return &r
}
