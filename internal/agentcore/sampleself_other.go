//go:build !linux

package agentcore

import (
	"runtime"
	"time"

	"github.com/agentsched/agentsched/watchdog"
)

// SelfUse returns what this process uses: of this system only the goroutines are
// known, the rest is negative.
func SelfUse() (watchdog.CoreUse, error) {
	return watchdog.CoreUse{RSSBytes: -1, CPU: -1, OpenFiles: -1, Goroutines: runtime.NumGoroutine()}, nil
}

// CPUOf returns ErrUnknown on this system.
func CPUOf([]int) (time.Duration, error) { return 0, ErrUnknown }

// CPUOfCgroup returns ErrUnknown on this system, which has no cgroups.
func CPUOfCgroup(string) (time.Duration, error) { return 0, ErrUnknown }
