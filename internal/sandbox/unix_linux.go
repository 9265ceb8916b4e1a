//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A run may make Unix sockets that are connections: it reaches those alone that it listens on itself. Which socket a path
// leads to says the kernel (sock_diag(7)): a file of the run's could have taken the place of another's.

// connectUnix connects a run's socket to the file that an address names, if the run listens on it. The file is opened
// first, and the connection made to what was opened: what the run puts at the path meanwhile has no effect.
func (n *notifier) connectUnix(q notification, raw []byte) {
	path, errno := n.unixPath(q, raw)
	if errno != 0 {
		n.refuseUnix(q, raw, errno)
		return
	}
	switch n.listens(path) {
	case byOthers:
		_ = unix.Close(path)
		n.refuseUnix(q, raw, unix.EPERM)
		return
	case byNobody:
		_ = unix.Close(path)
		n.reply(q, unix.ECONNREFUSED)
		return
	}
	address := make([]byte, 2, maxAddress)
	binary.NativeEndian.PutUint16(address, unix.AF_UNIX)
	address = append(append(address, selfFile(path)...), 0)
	n.dial(q, address, func() { _ = unix.Close(path) })
}

// refuseUnix answers a connection that is not made.
func (n *notifier) refuseUnix(q notification, raw []byte, errno unix.Errno) {
	if errno == unix.EPERM {
		n.refuse(q, unixDenial(raw))
		return
	}
	n.reply(q, errno)
}

func unixDenial(raw []byte) Denial {
	name := raw[2:]
	if len(name) > 0 && name[0] == 0 {
		name = append([]byte("@"), name[1:]...)
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	return Denial{Call: "connect to the Unix socket", Detail: string(name)}
}

// unixPath opens what the path in a struct sockaddr_un is to the caller, but not for reading or writing. It is EPERM for an
// abstract address.
func (n *notifier) unixPath(q notification, raw []byte) (int, unix.Errno) {
	path, _, _ := bytes.Cut(raw[2:], []byte{0})
	if len(path) == 0 {
		return -1, unix.EPERM
	}
	from, how := "cwd", unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if path[0] == '/' {
		from, path, how.Resolve = "root", bytes.TrimLeft(path, "/"), how.Resolve|unix.RESOLVE_IN_ROOT
	}
	folder, err := unix.Open("/proc/"+strconv.Itoa(int(q.pid))+"/"+from, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, unix.EPERM
	}
	defer unix.Close(folder)
	if !n.asks(q) {
		return -1, unix.ESRCH
	}
	fd, err := unix.Openat2(folder, string(path), &how)
	if errno := errnoOf(err); err != nil && (errno == unix.ENOENT || errno == unix.ENOTDIR) {
		return -1, errno
	} else if err != nil {
		return -1, unix.EPERM
	}
	return fd, 0
}

// listener says who listens on a socket.
type listener int

const (
	byOthers listener = iota
	byRun
	byNobody // and nobody else can: the file is the run's
)

// listens says who listens on the socket whose file was opened.
func (n *notifier) listens(path int) listener {
	var st unix.Stat_t
	if unix.Fstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || !n.owns(path) {
		return byOthers
	}
	all, err := unixListeners()
	if err != nil {
		return byOthers
	}
	who := byNobody
	for socket, file := range all {
		switch {
		case file != uint32(st.Ino):
		case n.servedUnix[socket]:
			who = byRun
		default:
			return byOthers
		}
	}
	return who
}

// owns says whether a file lies in what the run may change. The number that the kernel tells of a socket's file is cut to 32
// bits, and says nothing of its file system: elsewhere there may be another of the same.
func (n *notifier) owns(path int) bool {
	if n.level == Strict { // it sees no other folders than its own and those of the system
		return true
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(path))
	return err == nil && slices.ContainsFunc(n.write, func(folder string) bool { return within(real, folder) })
}

// realWrites are the real paths of what the policy allows to change.
func (p *Policy) realWrites() (list []string) {
	for _, path := range p.Write {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			list = append(list, real)
		}
	}
	return list
}

// serveUnix remembers that the run listens on a socket, unless that is bound to no path: an abstract name could be one that
// other programs look for.
func (n *notifier) serveUnix(fd int, inode uint64) bool {
	name, err := unix.Getsockname(fd)
	at, ok := name.(*unix.SockaddrUnix)
	if err != nil || !ok || at.Name == "" || at.Name[0] == '@' { // as package unix writes abstract ones
		return false
	}
	if len(n.servedUnix) >= maxServed {
		live, err := unixListeners()
		if err != nil {
			return false
		}
		maps.DeleteFunc(n.servedUnix, func(socket uint32, _ bool) bool { _, there := live[socket]; return !there })
	}
	if len(n.servedUnix) < maxServed {
		n.servedUnix[uint32(inode)] = true
	}
	return true
}

// unixListeners returns the Unix sockets of this network that listen at a path: the inodes of their files, cut to 32 bits, by
// those of the sockets. See sock_diag(7).
func unixListeners() (map[uint32]uint32, error) {
	const (
		listening = 1 << 10 // TCP_LISTEN
		showVFS   = 2       // UDIAG_SHOW_VFS
		vfs       = 1       // UNIX_DIAG_VFS
		sizeofMsg = 16      // struct unix_diag_msg
	)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	request := struct {
		header           unix.NlMsghdr
		family, protocol uint8
		_                uint16
		states, ino      uint32
		show             uint32
		cookie           [2]uint32
	}{family: unix.AF_UNIX, states: listening, show: showVFS}
	size := unsafe.Sizeof(request)
	request.header = unix.NlMsghdr{Len: uint32(size), Type: unix.SOCK_DIAG_BY_FAMILY, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP}
	if err := unix.Sendto(fd, unsafe.Slice((*byte)(unsafe.Pointer(&request)), size), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	list := make(map[uint32]uint32)
	buf := make([]byte, 32<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			length, kind := int(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint16(rest[4:])
			if length < unix.SizeofNlMsghdr || length > len(rest) {
				return nil, unix.EBADMSG
			}
			body := rest[unix.SizeofNlMsghdr:length]
			rest = rest[min((length+3)&^3, len(rest)):]
			switch {
			case kind == unix.NLMSG_DONE:
				return list, nil
			case kind == unix.NLMSG_ERROR || len(body) < sizeofMsg:
				return nil, unix.EBADMSG
			}
			for attrs := body[sizeofMsg:]; len(attrs) >= unix.SizeofNlAttr; {
				l, k := int(binary.NativeEndian.Uint16(attrs)), binary.NativeEndian.Uint16(attrs[2:])
				if l < unix.SizeofNlAttr || l > len(attrs) {
					return nil, unix.EBADMSG
				}
				if k == vfs && l >= unix.SizeofNlAttr+4 {
					list[binary.NativeEndian.Uint32(body[4:])] = binary.NativeEndian.Uint32(attrs[unix.SizeofNlAttr:])
				}
				attrs = attrs[min((l+3)&^3, len(attrs)):]
			}
		}
	}
}
