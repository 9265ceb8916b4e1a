package policy

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// Parking says that a kind of worker is to be left alone for some time.
type Parking struct {
	Kind  job.WorkerKind
	Until time.Time
	// Message is the first line of what the provider said.
	Message string
}

const (
	// parkFrom is how far ahead a provider's reset must lie for a usage limit. A
	// rate limit that is counted by the minute, the usual one, is over by then,
	// and concerns the model and not the account.
	parkFrom = time.Minute
	// parkMost is what the longest known limits need, which are counted by the
	// week: a time beyond it is a misunderstanding, and the provider is asked again then.
	parkMost = 8 * 24 * time.Hour
)

// Park says whether the end of an attempt on the choice tells that nothing of
// its kind of worker can run for a while: a rate limit whose reset lies more
// than a minute ahead.
func Park(o *job.Outcome, choice job.Choice, now time.Time) (Parking, bool) {
	if !usedUp(o, now) {
		return Parking{}, false
	}
	until := *o.RetryAt
	if latest := now.Add(parkMost); until.After(latest) {
		until = latest
	}
	return Parking{Kind: choice.Worker, Until: until, Message: firstLine(o.Message)}, true
}

// usedUp reports whether the attempt met a usage limit.
func usedUp(o *job.Outcome, now time.Time) bool {
	return o.State == job.RunFailed && o.Class == job.RateLimit && o.RetryAt != nil && o.RetryAt.Sub(now) > parkFrom
}
