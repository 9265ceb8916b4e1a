package breaker

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Config is when a breaker opens and how it closes again. It is the same for
// all breakers of a set.
type Config struct {
	// Window is how far back a closed breaker looks. It rolls in steps of
	// BucketPeriod and is rounded up to a multiple of it. An attempt counts
	// when it ends, however long it ran.
	Window       job.Duration `json:"window"`
	BucketPeriod job.Duration `json:"bucket_period"`
	// MinRequests is how many attempts must have ended within the window
	// before a ratio means anything.
	MinRequests int `json:"min_requests"`
	// FailureRatio opens the breaker: failures / ended attempts, in (0, 1].
	FailureRatio float64 `json:"failure_ratio"`
	// SlowAfter and SlowRatio open the breaker for slowness: successes that
	// took longer than SlowAfter / ended attempts. Either is 0: off.
	SlowAfter job.Duration `json:"slow_after"`
	SlowRatio float64      `json:"slow_ratio"`
	// OpenFor is how long the breaker stays open if nobody named a time.
	OpenFor job.Duration `json:"open_for"`
	// Probes is how many attempts a half-open breaker lets through; when all
	// of them succeeded it closes.
	Probes int `json:"probes"`
}

// DefaultConfig suits agents, whose attempts take minutes: it needs more
// failures than one job has attempts by default, and it calls nothing slow.
func DefaultConfig() Config {
	return Config{
		Window:       job.Duration(10 * time.Minute),
		BucketPeriod: job.Duration(30 * time.Second),
		MinRequests:  5,
		FailureRatio: 0.5,
		OpenFor:      job.Duration(time.Minute),
		Probes:       1,
	}
}

// Bounds of a Config. A breaker allocates one bucket for each BucketPeriod of its Window.
const (
	maxBuckets  = 1000
	maxRequests = 1_000_000
	minOpenFor  = time.Millisecond
)

// maxOpen bounds how long a breaker is held open, whoever named the time: a
// month is the longest quota that providers have, more is a misread header.
const maxOpen = 31 * 24 * time.Hour

// Validate returns every rule that c breaks, joined, each a *job.FieldError
// whose Field is the name that JSON gives it.
func (c Config) Validate() error {
	var errs []error
	want := func(ok bool, field string, value any, rule string, args ...any) {
		if !ok {
			message := fmt.Sprintf("%v is not allowed, want %s", value, fmt.Sprintf(rule, args...))
			errs = append(errs, &job.FieldError{Field: field, Message: message})
		}
	}
	switch {
	case c.BucketPeriod <= 0: // the window is measured by it
		want(false, "bucket_period", c.BucketPeriod, "a duration above 0")
	case c.Window/2 < c.BucketPeriod:
		// With a single bucket gobreaker forgets everything at once at fixed times.
		want(false, "window", c.Window, "at least twice bucket_period (%s)", c.BucketPeriod)
	default:
		want(c.Window/c.BucketPeriod <= maxBuckets, "window", c.Window, "at most %d times bucket_period (%s)", maxBuckets, c.BucketPeriod)
	}
	want(c.MinRequests >= 1 && c.MinRequests <= maxRequests, "min_requests", c.MinRequests, "1 to %d", maxRequests)
	// Ratios are compared so that not-a-number is refused.
	want(c.FailureRatio > 0 && c.FailureRatio <= 1, "failure_ratio", c.FailureRatio, "a number above 0 and up to 1")
	want(c.SlowRatio >= 0 && c.SlowRatio <= 1, "slow_ratio", c.SlowRatio, "a number above 0 and up to 1, or 0 for off")
	want(c.SlowAfter >= 0, "slow_after", c.SlowAfter, "a duration above 0, or 0 for off")
	want(!(c.SlowRatio > 0 && c.SlowAfter == 0), "slow_after", c.SlowAfter, "a duration above 0 together with a slow_ratio (%v)", c.SlowRatio)
	want(c.OpenFor.Std() >= minOpenFor && c.OpenFor.Std() <= maxOpen, "open_for", c.OpenFor, "%s to %s", minOpenFor, maxOpen)
	want(c.Probes >= 1 && c.Probes <= maxRequests, "probes", c.Probes, "1 to %d", maxRequests)
	return errors.Join(errs...)
}

// slow reports whether a success that took d was a slow one.
func (c Config) slow(d time.Duration) bool {
	return c.SlowRatio > 0 && c.SlowAfter > 0 && d > c.SlowAfter.Std()
}
