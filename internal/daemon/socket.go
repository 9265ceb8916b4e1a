package daemon

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/agentsched/agentsched/client"
)

// SocketListener is a listening unix socket together with its file, which is removed
// when it is closed, unless somebody else goes on with it.
type SocketListener struct {
	*net.UnixListener
	path   string
	kept   atomic.Bool
	closed atomic.Bool
}

// ListenSocket listens on a unix socket that only this user may open. The caller
// holds the state directory's lock, so a socket that is there is a leftover.
func ListenSocket(path string) (*SocketListener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove the socket of an earlier scheduler: %w", err)
	}
	addr, done, err := client.SocketAddress(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // under addr it may be gone; removed by Close
	// The directory is 0700, so nobody else could have come before this.
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("protect %s: %w", path, err)
	}
	return &SocketListener{UnixListener: l, path: path}, nil
}

// AdoptSocket takes over a socket on which an earlier program, or the service manager,
// listens already and whose file is the one at path. With kept that stays when
// the listener is closed, since it belongs to somebody else. If AdoptSocket fails, l is
// as it was.
func AdoptSocket(l net.Listener, path string, kept bool) (*SocketListener, error) {
	own, ok := l.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("take over the socket %s: what was inherited for it listens on %s %s", path, l.Addr().Network(), l.Addr())
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("take over the socket %s: %w", path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("take over the socket %s: it is no socket", path)
	}
	// A long path was reached through a descriptor that is gone by now.
	if at := own.Addr().String(); len(path) <= client.MaxSocketPath && at != path {
		return nil, fmt.Errorf("take over the socket %s: the inherited one is that of %s", path, at)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("take over the socket %s: its mode is %#o, which lets others in; want 0600 (SocketMode=0600)", path, info.Mode().Perm())
	}
	own.SetUnlinkOnClose(false)
	adopted := &SocketListener{UnixListener: own, path: path}
	adopted.kept.Store(kept)
	return adopted, nil
}

// Keep lets the file stay when the listener is closed; keep false undoes that, also
// if it is closed by now.
func (l *SocketListener) Keep(keep bool) {
	l.kept.Store(keep)
	if !keep && l.closed.Load() {
		os.Remove(l.path)
	}
}

// Kept reports whether the file stays when the listener is closed.
func (l *SocketListener) Kept() bool { return l.kept.Load() }

// Close stops listening and removes the socket's file.
func (l *SocketListener) Close() error {
	l.closed.Store(true) // before it is asked for kept, as Keep does it the other way round
	if !l.kept.Load() {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}
