package access

import "golang.org/x/sys/unix"

// peerUID returns the effective user id that the peer had when it connected
// (unix(7), SO_PEERCRED).
func peerUID(fd int) (uint32, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return c.Uid, nil
}
