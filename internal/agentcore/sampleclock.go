package agentcore

import "time"

// Clock is both clocks at one moment.
type Clock struct {
	Wall time.Time     // without its monotonic reading
	Mono time.Duration // since a moment of the caller's
}

// ReadClock reads both clocks. Origin comes from time.Now and is the same for
// all readings that are compared.
func ReadClock(origin time.Time) Clock {
	now := time.Now()
	return Clock{Wall: now.Round(0), Mono: now.Sub(origin)}
}

// JumpSince returns by how much more the wall clock went on since before than
// the monotonic clock did; below zero, it went back. On Linux the monotonic
// clock stands still while the machine sleeps (clock_gettime(2)), so a sleep
// shows as a jump ahead.
func (c Clock) JumpSince(before Clock) time.Duration {
	return c.Wall.Sub(before.Wall) - (c.Mono - before.Mono)
}
