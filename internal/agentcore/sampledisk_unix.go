//go:build linux || darwin

package agentcore

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/watchdog"
)

// DiskSpace returns what is free on the disk that holds path, for processes
// without privileges: the blocks that only root may use are not counted.
func DiskSpace(path string) (watchdog.DiskSpace, error) {
	var s unix.Statfs_t
	for {
		err := unix.Statfs(path, &s)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return watchdog.DiskSpace{}, fmt.Errorf("read free space of %s: %w", path, err)
		}
		break
	}
	block := blockSize(&s)
	return watchdog.DiskSpace{
		Path:      path,
		FreeBytes: int64(s.Bavail) * block, TotalBytes: int64(s.Blocks) * block,
		FreeInodes: int64(s.Ffree), TotalInodes: int64(s.Files), // 0 where inodes are made as needed (btrfs)
	}, nil
}
