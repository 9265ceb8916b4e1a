package job

import (
	"fmt"
	"time"
)

// Duration is a time.Duration that reads and writes as a Go duration string,
// e.g. "1m30s", in job files, in JSON and in the store.
type Duration time.Duration

// Std returns d as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns d as time.Duration prints it.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes d as a Go duration string.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a Go duration string. Negative durations are refused.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration, want a number with a unit such as 90s, 15m or 1h30m", text)
	}
	if v < 0 {
		return fmt.Errorf("%q is negative, want a duration of zero or more", text)
	}
	*d = Duration(v)
	return nil
}
