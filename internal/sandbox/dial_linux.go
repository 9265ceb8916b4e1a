//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxDials is how many connections into a sandbox there can be at the same time. For each the stub opens a socket: one
// belongs to the network namespace that it was opened in, whoever connects it.
const maxDials = 8

// dialer connects into a sandbox by sockets that were opened there.
type dialer struct {
	free chan int // unconnected sockets

	mu     sync.Mutex
	closed bool
}

func newDialer(sockets []int) *dialer {
	d := &dialer{free: make(chan int, len(sockets))}
	for _, fd := range sockets {
		d.free <- fd
	}
	return d
}

// dial connects to a port of the sandbox's loopback. It waits while all sockets are in use.
func (d *dialer) dial(ctx context.Context, port uint16) (net.Conn, error) {
	var fd int
	select {
	case got, ok := <-d.free:
		if !ok {
			return nil, net.ErrClosed
		}
		fd = got
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	conn, err := connect(ctx, fd, port)
	if err != nil {
		d.put(fd)
		return nil, err
	}
	return &dialed{Conn: conn, back: sync.OnceFunc(func() { d.put(fd) })}, nil
}

// put takes a socket back. A connection to no address makes it one that can be connected again (connect(2)).
func (d *dialer) put(fd int) {
	unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, reset := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), unsafe.Sizeof(unspecified))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || reset != 0 {
		_ = unix.Close(fd)
		return
	}
	d.free <- fd
}

// close closes the sockets that are free; the others are closed with their connections.
func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.closed = true
	close(d.free)
	for fd := range d.free {
		_ = unix.Close(fd)
	}
}

// dialed is a connection that gives its socket back.
type dialed struct {
	net.Conn
	back func()
}

// Close ends the connection.
func (c *dialed) Close() error {
	err := c.Conn.Close()
	c.back()
	return err
}

// connect connects a socket that does not block. The connection has a descriptor of its own.
func connect(ctx context.Context, fd int, port uint16) (net.Conn, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("connect into the sandbox: %w", err)
	}
	f := os.NewFile(uintptr(own), "connection")
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	to := &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}
	err = unix.Connect(own, to)
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = awaitConnected(f)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("connect into the sandbox, to port %d: %w", port, err)
	}
	return net.FileConn(f)
}

// awaitConnected waits until a connection is made or refused.
func awaitConnected(f syscall.Conn) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Write(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(poll, 0); n == 0 || errors.Is(err, unix.EINTR) {
			return false
		}
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if result = err; errno != 0 {
			result = syscall.Errno(errno)
		}
		return true
	})
	return errors.Join(err, result)
}
