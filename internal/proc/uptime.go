package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime returns the time since the host's start, also that in which it slept.
func Uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clockOfUptime, &t); err != nil {
		panic("read the clock of uptime, which every kernel has: " + err.Error())
	}
	return time.Duration(t.Nano())
}
