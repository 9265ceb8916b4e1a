//go:build !linux && !darwin

package sample

import (
	"fmt"

	"github.com/agentsched/agentsched/watchdog"
)

// Disk returns ErrUnknown on this system.
func Disk(path string) (watchdog.DiskSpace, error) {
	return watchdog.DiskSpace{}, fmt.Errorf("read free space of %s: %w", path, ErrUnknown)
}
