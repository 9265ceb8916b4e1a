package agentcore

import "golang.org/x/sys/unix"

// blockSize is the unit of a file system's block counts, see statfs(2).
func blockSize(s *unix.Statfs_t) int64 { return int64(s.Bsize) }
