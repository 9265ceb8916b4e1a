package access

import (
	"errors"

	"github.com/agentsched/agentsched/internal/proc"
)

// peerAt asks the kernel who connected.
func peerAt(fd int) peer {
	process, uid, err := proc.Peer(fd)
	switch {
	case errors.Is(err, proc.ErrGone):
		return peer{uid: uid, gone: true}
	case err != nil:
		return peer{err: err}
	}
	return peer{uid: uid, process: process, elsewhere: process.Pid == 0}
}
