//go:build !linux && !darwin

package agentcore

import (
	"fmt"

	"github.com/agentsched/agentsched/watchdog"
)

// DiskSpace returns ErrUnknown on this system.
func DiskSpace(path string) (watchdog.DiskSpace, error) {
	return watchdog.DiskSpace{}, fmt.Errorf("read free space of %s: %w", path, ErrUnknown)
}
