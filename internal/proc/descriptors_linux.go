package proc

import (
	"math"

	"golang.org/x/sys/unix"
)

// keepDescriptors needs Linux 5.11.
func keepDescriptors() error { return unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) }
