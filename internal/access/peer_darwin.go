package access

import "golang.org/x/sys/unix"

// peerUID returns the effective user id that the peer had when it connected
// (unix(4), LOCAL_PEERCRED).
func peerUID(fd int) (uint32, error) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return c.Uid, nil
}
