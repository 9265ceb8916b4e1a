package access

import "golang.org/x/sys/unix"

// peerAt asks for the effective user id that the peer had when it connected
// (unix(4), LOCAL_PEERCRED).
func peerAt(fd int) peer {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return peer{err: err}
	}
	return peer{uid: c.Uid}
}
