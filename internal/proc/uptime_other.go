//go:build !linux

package proc

import "golang.org/x/sys/unix"

// clockOfUptime goes on while the host sleeps, on macOS: there it is CLOCK_UPTIME_RAW
// that does not.
const clockOfUptime = unix.CLOCK_MONOTONIC
