package proc

import "golang.org/x/sys/unix"

// clockOfUptime goes on while the host sleeps; CLOCK_MONOTONIC does not (clock_gettime(2)).
const clockOfUptime = unix.CLOCK_BOOTTIME
