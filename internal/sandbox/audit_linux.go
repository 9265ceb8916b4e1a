//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Types of Landlock's records in the audit log, since Linux 6.15. See the kernel's Documentation/admin-guide/LSM/landlock.rst.
const (
	auditLandlockAccess = 1423
	auditLandlockDomain = 1424
)

// auditABI is the version of Landlock that logs what it refuses.
const auditABI = 7

// AuditLog hears in the kernel's audit log what Landlock refuses to runs at level Standard. Nothing of others is read of the
// log, and nothing about it is changed. The zero value is one that does not listen yet; it must not be copied.
type AuditLog struct {
	mu     sync.Mutex // guards what follows
	socket *os.File   // nil: it does not listen
	done   chan struct{}
	runs   auditLog
	record [16 << 10]byte // one has at most 8970 bytes
}

// Follow has denied told what Landlock refuses to the processes whose Policy.Audit is the run, until it is closed. denied must
// not wait, nor call the log. The error says why that cannot be heard of now.
func (l *AuditLog) Follow(denied func(Denial)) (*AuditedRun, error) {
	if err := auditProblem(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket == nil {
		socket, err := listenAudit()
		if err != nil {
			return nil, err
		}
		l.socket, l.done, l.runs = socket, make(chan struct{}), newAuditLog()
		go l.listen(socket, l.done)
	}
	return &AuditedRun{log: l, denied: denied, told: make(map[Denial]bool)}, nil
}

// Close ends the listening; nothing is told any more when it returns.
func (l *AuditLog) Close() error {
	l.mu.Lock()
	socket, done := l.socket, l.done
	l.socket = nil
	l.mu.Unlock()
	if socket == nil {
		return nil
	}
	err := socket.Close()
	<-done
	return err
}

func (l *AuditLog) listen(socket *os.File, done chan<- struct{}) {
	defer close(done)
	conn, err := socket.SyscallConn()
	if err != nil {
		return
	}
	for {
		if err := conn.Read(func(fd uintptr) bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.take(int(fd))
		}); err != nil {
			return
		}
	}
}

// take takes the next record, if there is one. Those that have not fit into the socket are lost.
func (l *AuditLog) take(fd int) bool {
	n, from, err := unix.Recvfrom(fd, l.record[:], unix.MSG_DONTWAIT)
	if err != nil {
		return err == unix.ENOBUFS || err == unix.EINTR
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 || n < unix.NLMSG_HDRLEN {
		return true
	}
	if r, err := parseAuditRecord(strings.TrimRight(string(l.record[unix.NLMSG_HDRLEN:n]), "\x00\n")); err == nil {
		l.runs.add(r)
	}
	return true
}

// claim says that the process pid, which was started since then, puts itself into a domain.
func (r *AuditedRun) claim(pid int, since time.Time) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.runs.claim(pid, auditedProcess{run: r, since: since})
}

// Close ends what is told of the run, after what is in the log by now. Nil is no run.
func (r *AuditedRun) Close() {
	if r == nil {
		return
	}
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket == nil {
		return
	}
	if conn, err := l.socket.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) {
			for range maxUnclaimed { // others may write to it without an end
				if !l.take(int(fd)) {
					return
				}
			}
		})
	}
	l.runs.forget(r)
}

// restrictFlags are those of landlock_restrict_self(2). The domains that a run makes itself write nothing to the host's audit
// log: it could fill that otherwise.
func restrictFlags(abi int, audited bool) uint64 {
	if abi < auditABI {
		return 0
	}
	if audited {
		return unix.LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF | unix.LANDLOCK_RESTRICT_SELF_LOG_NEW_EXEC_ON
	}
	return unix.LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF
}

// auditProblem returns nil if what Landlock refuses can be heard of now.
func auditProblem() error {
	abi, err := landlockABI()
	if err != nil {
		return landlockProblem(err)
	}
	if abi < auditABI {
		return &Problem{What: "the kernel does not log what Landlock refuses", Mend: "update it to Linux 6.15 or newer"}
	}
	status, err := askAudit()
	if err != nil {
		return notReadable(err)
	}
	const stopsKernel = 2 // AUDIT_FAIL_PANIC
	switch {
	case status.Enabled == 0:
		return &Problem{What: "the host's audit is off", Mend: "start auditd, or run auditctl -e 1"}
	case status.Failure == stopsKernel:
		return &Problem{What: "the host's audit stops the kernel when it loses records, which a run could make it do", Mend: "run auditctl -f 1"}
	}
	socket, err := listenAudit()
	if err != nil {
		return err
	}
	return socket.Close()
}

func notReadable(err error) error {
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return &Problem{What: "the kernel has no audit", Mend: "use one that is built with CONFIG_AUDIT"}
	case errors.Is(err, unix.ECONNREFUSED):
		return &Problem{What: "the host's audit cannot be asked from within a container", Mend: "run outside of it"}
	case errors.Is(err, unix.EPERM):
		return &Problem{What: "the host's audit may not be asked and read", Mend: "run as root outside of a container, or give the scheduler CAP_AUDIT_CONTROL and CAP_AUDIT_READ"}
	}
	return &Problem{What: "the host's audit: " + err.Error()}
}

// auditStatus is the beginning of struct audit_status.
type auditStatus struct {
	Mask, Enabled, Failure, Pid uint32
}

// askAudit asks the kernel what its audit does.
func askAudit() (status auditStatus, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		return status, err
	}
	defer unix.Close(fd)
	timeout := unix.NsecToTimeval(time.Second.Nanoseconds()) // a thread of the kernel's sends the answer
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return status, err
	}
	request := unix.NlMsghdr{Len: unix.NLMSG_HDRLEN, Type: unix.AUDIT_GET, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK}
	if err := unix.Sendto(fd, (*[unix.NLMSG_HDRLEN]byte)(unsafe.Pointer(&request))[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return status, err
	}
	for {
		var b [1024]byte
		n, _, err := unix.Recvfrom(fd, b[:], 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return status, fmt.Errorf("it does not answer: %w", err)
		}
		if n < unix.NLMSG_HDRLEN+4 {
			return status, errors.New("the answer is too short")
		}
		body := b[unix.NLMSG_HDRLEN:n]
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_ERROR: // 0 acknowledges the request
			if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body))); errno != 0 {
				return status, errno
			}
		case unix.AUDIT_GET:
			if _, err := binary.Decode(body, binary.NativeEndian, &status); err != nil {
				return status, errors.New("the answer is too short")
			}
			return status, nil
		}
	}
}

// listenAudit makes a socket that hears Landlock's records, and no others.
func listenAudit() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_AUDIT)
	if err != nil {
		return nil, notReadable(err)
	}
	socket := os.NewFile(uintptr(fd), "audit log")
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20) // what it has else holds few
	err = attach(fd, []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 2}, // nlmsg_type, little endian
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: swapped(auditLandlockAccess), SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: swapped(auditLandlockDomain), SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: ^uint32(0)},
	})
	if err != nil {
		return nil, errors.Join(notReadable(err), socket.Close())
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.AUDIT_NLGRP_READLOG - 1)}); err != nil {
		return nil, errors.Join(notReadable(err), socket.Close())
	}
	return socket, nil
}

func swapped(kind uint32) uint32 { return kind&0xff<<8 | kind>>8 }

// attach has a socket drop what a filter refuses.
func attach(fd int, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
}
