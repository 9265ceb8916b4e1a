package client

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// MaxSocketPath is what fits into a socket address everywhere (104 bytes on
// macOS, 108 on Linux, with a final zero).
const MaxSocketPath = 103

// DialSocket connects to the socket at path.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	addr, done, err := SocketAddress(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", addr)
}

// SocketAddress returns an address for the socket at path that fits into a socket
// address however long path is: a long one is reached through a descriptor of
// its directory. done closes it.
func SocketAddress(path string) (addr string, done func(), err error) {
	if len(path) <= MaxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	via := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	if _, err := os.Stat(filepath.Dir(via)); err != nil {
		dir.Close()
		return "", nil, fmt.Errorf("socket path %s has %d bytes, at most %d are possible here; choose a shorter state directory with --state DIR", path, len(path), MaxSocketPath)
	}
	return via, func() { dir.Close() }, nil
}
