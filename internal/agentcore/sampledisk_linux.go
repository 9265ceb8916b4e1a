package agentcore

import "golang.org/x/sys/unix"

// blockSize is the unit of a file system's block counts: f_frsize, as in
// statvfs(3). f_bsize is what is good for transfers, larger on some network
// and FUSE file systems.
func blockSize(s *unix.Statfs_t) int64 {
	if s.Frsize > 0 {
		return int64(s.Frsize)
	}
	return int64(s.Bsize)
}
