package breaker

import (
	"fmt"
	"time"
)

// Config is when a breaker opens and how it closes again. It is the same for
// all breakers of a set.
type Config struct {
	// Window is how far back a closed breaker looks. It rolls in steps of
	// BucketPeriod and is rounded up to a multiple of it. An attempt counts
	// when it ends, however long it ran.
	Window       time.Duration
	BucketPeriod time.Duration
	// MinRequests is how many attempts must have ended within the window
	// before a ratio means anything.
	MinRequests int
	// FailureRatio opens the breaker: failures / ended attempts, in (0, 1].
	FailureRatio float64
	// SlowAfter and SlowRatio open the breaker for slowness: successes that
	// took longer than SlowAfter / ended attempts. Either is 0: off.
	SlowAfter time.Duration
	SlowRatio float64
	// OpenFor is how long the breaker stays open if nobody named a time.
	OpenFor time.Duration
	// Probes is how many attempts a half-open breaker lets through; when all
	// of them succeeded it closes.
	Probes int
}

// DefaultConfig suits agents, whose attempts take minutes: it needs more
// failures than one job has attempts by default, and it calls nothing slow.
func DefaultConfig() Config {
	return Config{
		Window:       10 * time.Minute,
		BucketPeriod: 30 * time.Second,
		MinRequests:  5,
		FailureRatio: 0.5,
		OpenFor:      time.Minute,
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

// Validate returns the first rule that c breaks, with the name that the field
// has in a configuration file, its value and what would be right.
func (c Config) Validate() error {
	bad := func(field string, value any, rule string) error {
		return fmt.Errorf("%s: %v is not allowed, want %s", field, value, rule)
	}
	switch {
	case c.BucketPeriod <= 0:
		return bad("bucket_period", c.BucketPeriod, "a duration above 0")
	case c.Window/2 < c.BucketPeriod:
		// With a single bucket gobreaker forgets everything at once at fixed times.
		return bad("window", c.Window, fmt.Sprintf("at least twice bucket_period (%s)", c.BucketPeriod))
	case c.Window/c.BucketPeriod > maxBuckets:
		return bad("window", c.Window, fmt.Sprintf("at most %d times bucket_period (%s)", maxBuckets, c.BucketPeriod))
	case c.MinRequests < 1 || c.MinRequests > maxRequests:
		return bad("min_requests", c.MinRequests, fmt.Sprintf("1 to %d", maxRequests))
	case !(c.FailureRatio > 0 && c.FailureRatio <= 1): // so written, it refuses NaN
		return bad("failure_ratio", c.FailureRatio, "a number above 0 and up to 1")
	case c.SlowAfter < 0:
		return bad("slow_after", c.SlowAfter, "a duration above 0, or 0 for off")
	case !(c.SlowRatio >= 0 && c.SlowRatio <= 1):
		return bad("slow_ratio", c.SlowRatio, "a number above 0 and up to 1, or 0 for off")
	case c.SlowRatio > 0 && c.SlowAfter == 0:
		return bad("slow_after", c.SlowAfter, fmt.Sprintf("a duration above 0 together with a slow_ratio (%v)", c.SlowRatio))
	case c.OpenFor < minOpenFor || c.OpenFor > maxOpen:
		return bad("open_for", c.OpenFor, fmt.Sprintf("%s to %s", minOpenFor, maxOpen))
	case c.Probes < 1 || c.Probes > maxRequests:
		return bad("probes", c.Probes, fmt.Sprintf("1 to %d", maxRequests))
	}
	return nil
}

// slow reports whether a success that took d was a slow one.
func (c Config) slow(d time.Duration) bool {
	return c.SlowRatio > 0 && c.SlowAfter > 0 && d > c.SlowAfter
}
