//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxAddress is the size of struct sockaddr_storage, the most that the kernel takes.
const maxAddress = 128

// connect decides connect(2) by its address and makes the connection on the run's own socket. What the caller writes
// over the address meanwhile has no effect.
func (n *notifier) connect(q notification) {
	length := uint32(q.args[2])
	if int32(length) < 0 || length > maxAddress {
		n.reply(q, unix.EINVAL)
		return
	}
	raw, errno := readMemory(int(q.pid), q.args[1], int(length))
	if errno != 0 {
		n.refuseUnseen(q, "connect", errno)
		return
	}
	addr, family, ok := address(raw)
	switch {
	case family == unix.AF_UNSPEC && len(raw) >= 2: // ends a connection
	case family == unix.AF_UNIX && len(raw) >= 2:
		n.connectUnix(q, raw)
		return
	case !ok:
		n.refuse(q, Denial{Call: "connect", Detail: "an address of family " + familyName(uint64(family))})
		return
	case n.redirected(addr) != 0: // the port stands at the same place for both families
		binary.BigEndian.PutUint16(raw[2:], n.redirected(addr))
	case !n.permits(q, addr):
		n.refuse(q, Denial{Call: "connect", Detail: addr.String()})
		return
	}
	n.dial(q, raw, func() {})
}

// dial makes the connection to an address. done is called when it is made or has failed.
func (n *notifier) dial(q notification, address []byte, done func()) {
	fd, errno := n.socket(q)
	if errno != 0 {
		done()
		n.refuseUnseen(q, "connect", errno)
		return
	}
	n.slots <- struct{}{} // freed by a connection's end, at the latest by close
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		<-n.slots
		done()
		_ = unix.Close(fd)
		return
	}
	n.connecting[fd] = true
	n.pending.Go(func() {
		n.reply(q, connectTo(fd, address))
		done()
		n.mu.Lock()
		delete(n.connecting, fd)
		n.mu.Unlock()
		_ = unix.Close(fd)
		<-n.slots
	})
}

// connectTo is connect(2), which waits if the socket does.
func connectTo(fd int, raw []byte) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(raw))), uintptr(len(raw)))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// listen makes listen(2) on the run's socket and remembers that the run serves there. One of TCP takes connections of the
// loopback device only, unless the run has the full network: of others a run would be asked by hosts that it may not ask.
func (n *notifier) listen(q notification) {
	fd, errno := n.socket(q)
	if errno != 0 {
		n.refuseUnseen(q, "listen", errno)
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		n.reply(q, unix.ENOTSOCK)
		return
	}
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	switch {
	case err != nil:
		n.reply(q, unix.EOPNOTSUPP)
		return
	case family == unix.AF_UNIX:
		if !n.serveUnix(fd, st.Ino) {
			n.refuse(q, Denial{Call: "listen", Detail: "on a Unix socket without a path"})
			return
		}
	case family != unix.AF_INET && family != unix.AF_INET6:
		n.reply(q, unix.EOPNOTSUPP)
		return
	case n.full:
	default:
		if !n.bindToLoopback(q, fd) {
			return
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LISTEN, uintptr(fd), uintptr(q.args[1]), 0); errno != 0 {
		n.reply(q, errno)
		return
	}
	if family != unix.AF_UNIX && !n.full {
		n.serve(q, fd, st.Ino)
	}
	n.reply(q, 0)
}

// serve remembers where the run serves.
func (n *notifier) serve(q notification, fd int, inode uint64) {
	if len(n.served) >= maxServed {
		n.forget(q)
	}
	if addr, ok := boundTo(fd); ok && len(n.served) < maxServed {
		n.served[serving{addr, inode}] = true
	}
}

// bindToLoopback binds a socket to the loopback device; if that fails, the call is answered.
func (n *notifier) bindToLoopback(q notification, fd int) bool {
	if device, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE); err == nil && device == "lo" {
		return true
	}
	if err := unix.BindToDevice(fd, "lo"); err != nil {
		n.refuse(q, Denial{Call: "listen", Detail: "on a socket that cannot be bound to the loopback device"})
		return false
	}
	return true
}

// boundTo returns the address that a socket has, as /proc/net/tcp shows it.
func boundTo(fd int) (netip.AddrPort, bool) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, false
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(name.Addr), uint16(name.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(name.Addr), uint16(name.Port)), true
	}
	return netip.AddrPort{}, false
}

// redirected returns the port that an address is led to, 0 for none.
func (n *notifier) redirected(addr netip.AddrPort) uint16 {
	if addr.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		return 0
	}
	return n.redirect[addr.Port()]
}

// permits says whether the run may connect to this address.
func (n *notifier) permits(q notification, addr netip.AddrPort) bool {
	if n.full {
		return true
	}
	ip := addr.Addr()
	switch { // the kernel connects to the loopback
	case ip.IsUnspecified() && ip.Is4():
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case ip.IsUnspecified():
		ip = netip.IPv6Loopback()
	}
	if ip == netip.AddrFrom4([4]byte{127, 0, 0, 1}) && slices.Contains(n.ports, addr.Port()) {
		return true
	}
	return ip.IsLoopback() && len(n.served) > 0 && n.serves(q, netip.AddrPortFrom(ip, addr.Port()))
}

// serves says whether all sockets that could take a connection to this address are the run's.
func (n *notifier) serves(q notification, addr netip.AddrPort) bool {
	found := false
	for _, l := range listeners(int(q.pid)) {
		if !l.takes(addr) {
			continue
		}
		if !n.served[l] {
			return false
		}
		found = true
	}
	return found
}

// forget drops the sockets that nobody listens on any more.
func (n *notifier) forget(q notification) {
	live := listeners(int(q.pid))
	maps.DeleteFunc(n.served, func(l serving, _ bool) bool { return !slices.Contains(live, l) })
}

// address returns what a struct sockaddr of IP says: IPv4 in IPv6 as IPv4. ok is false for other families and for one
// that is too short.
func address(raw []byte) (addr netip.AddrPort, family uint16, ok bool) {
	if len(raw) < 2 {
		return netip.AddrPort{}, 0, false
	}
	family = binary.NativeEndian.Uint16(raw)
	switch {
	case family == unix.AF_INET && len(raw) >= unix.SizeofSockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:8])), binary.BigEndian.Uint16(raw[2:])), family, true
	case family == unix.AF_INET6 && len(raw) >= 24: // without the scope, as the kernel takes it
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw[8:24])).Unmap(), binary.BigEndian.Uint16(raw[2:])), family, true
	}
	return netip.AddrPort{}, family, false
}

// refuseUnseen answers a call that cannot be looked into.
func (n *notifier) refuseUnseen(q notification, call string, errno unix.Errno) {
	switch errno {
	case unix.EPERM, unix.EACCES, unix.ENOSYS: // such as a program that cannot be traced
		n.refuse(q, Denial{Call: call, Detail: "by a process whose memory and sockets are closed to the scheduler"})
	default:
		n.reply(q, errno)
	}
}

// socket returns a descriptor of ours for the one that q's first argument is.
func (n *notifier) socket(q notification) (int, unix.Errno) {
	pidfd, err := unix.PidfdOpen(int(q.pid), unix.O_EXCL) // PIDFD_THREAD
	if err == unix.EINVAL {                               // before Linux 6.9, where it must be the process
		pidfd, err = unix.PidfdOpen(processOf(int(q.pid)), 0)
	}
	if err != nil {
		return -1, errnoOf(err)
	}
	defer unix.Close(pidfd)
	if !n.asks(q) {
		return -1, unix.ESRCH
	}
	fd, err := unix.PidfdGetfd(pidfd, int(int32(q.args[0])), 0)
	if err != nil {
		return -1, errnoOf(err)
	}
	return fd, 0
}

// processOf returns the process of a thread, or 0.
func processOf(thread int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(thread) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nTgid:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if err != nil {
		return 0
	}
	return pid
}

// readMemory reads the memory of a thread. The caller checks afterwards that the thread was the one it meant.
func readMemory(pid int, at uint64, size int) ([]byte, unix.Errno) {
	buf := make([]byte, size)
	if size == 0 {
		return buf, 0
	}
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(size)}}
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: size}}, 0)
	if err != nil {
		return nil, errnoOf(err)
	}
	if n != size {
		return nil, unix.EFAULT
	}
	return buf, 0
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}
