//go:build linux && !amd64

package faults

import (
	"errors"
	"time"
)

// canJump: elsewhere no scenario has a clock that jumps.
const canJump = false

func jumpClock(int, time.Duration) error { return errors.ErrUnsupported }
