package breaker

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
)

// Config is when a breaker opens and how it closes again. It is the same for
// all breakers of a set.
type Config struct {
	// How far back it looks, at least two and at most 1000 times `bucket_period`. A run counts when it
	// ends, however long it was.
	//
	// It is rounded up to a multiple of BucketPeriod.
	Window job.Duration `json:"window"`
	// The steps in which the window moves on.
	BucketPeriod job.Duration `json:"bucket_period" above:"0s"`
	// So many runs must have ended within the window before a ratio means anything.
	MinRequests int `json:"min_requests" min:"1" max:"1000000"`
	// It opens if this part of them failed.
	FailureRatio float64 `json:"failure_ratio" above:"0" max:"1"`
	// A success that took longer is a slow one; `0s` none is.
	SlowAfter job.Duration `json:"slow_after" min:"0s"`
	// It opens if this part of them was slow; `0` never. Needs `slow_after`.
	SlowRatio float64 `json:"slow_ratio" min:"0" max:"1"`
	// For how long it is open if the provider names no time itself, `1ms` to `744h`.
	OpenFor job.Duration `json:"open_for" min:"1ms" max:"744h"`
	// So many runs try it again after that; if all succeed it closes.
	Probes int `json:"probes" min:"1" max:"1000000"`
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

// maxBuckets bounds Window: a breaker allocates one bucket for each BucketPeriod of its Window.
const maxBuckets = 1000

// maxOpen bounds how long a breaker is held open, also if the provider named the time: a
// month is the longest quota that providers have, more is a misread header.
const maxOpen = 31 * 24 * time.Hour

// Validate returns every rule that c breaks, joined, each a *job.FieldError
// whose Field is the name that JSON gives it.
func (c Config) Validate() error {
	errs := fields.Errors(c)
	bad := func(field string, value any, want string, args ...any) {
		errs = append(errs, &job.FieldError{Field: field, Message: fmt.Sprintf("is %v, want %s", value, fmt.Sprintf(want, args...))})
	}
	switch {
	case c.BucketPeriod <= 0: // the window is measured by it
	case c.Window/2 < c.BucketPeriod:
		// With a single bucket gobreaker forgets everything at once at fixed times.
		bad("window", c.Window, "at least twice bucket_period (%s)", c.BucketPeriod)
	case c.Window/c.BucketPeriod > maxBuckets:
		bad("window", c.Window, "at most %d times bucket_period (%s)", maxBuckets, c.BucketPeriod)
	}
	if c.SlowRatio > 0 && c.SlowAfter == 0 {
		bad("slow_after", c.SlowAfter, "a duration above 0s together with a slow_ratio (%v)", c.SlowRatio)
	}
	return errors.Join(errs...)
}

// slow reports whether a success that took d was a slow one.
func (c Config) slow(d time.Duration) bool {
	return c.SlowRatio > 0 && c.SlowAfter > 0 && d > c.SlowAfter.Std()
}
