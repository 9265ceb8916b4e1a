package socket

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// maxSocketPath is what fits into a socket address everywhere (104 bytes on
// macOS, 108 on Linux, with a final zero).
const maxSocketPath = 103

// Listen listens on a unix socket that only this user may open. The caller
// holds the state directory's lock, so a socket that is there is a leftover.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove the socket of an earlier scheduler: %w", err)
	}
	addr, done, err := socketAddr(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // under addr it may be gone; removed below
	// The directory is 0700, so nobody else could have come before this.
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("protect %s: %w", path, err)
	}
	return &removing{l, path}, nil
}

// removing removes the socket's file when the listener is closed.
type removing struct {
	net.Listener
	path string
}

func (r *removing) Close() error {
	os.Remove(r.path)
	return r.Listener.Close()
}

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	addr, done, err := socketAddr(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", addr)
}

// socketAddr returns an address for the socket at path that fits into a socket
// address however long path is: a long one is reached through a descriptor of
// its directory. done closes it.
func socketAddr(path string) (addr string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	via := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	if _, err := os.Stat(filepath.Dir(via)); err != nil {
		dir.Close()
		return "", nil, fmt.Errorf("socket path %s has %d bytes, at most %d are possible here; choose a shorter state directory with --state DIR", path, len(path), maxSocketPath)
	}
	return via, func() { dir.Close() }, nil
}
