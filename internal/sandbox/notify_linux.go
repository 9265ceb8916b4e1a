//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif; see seccomp_unotify(2).
type notification struct {
	id    uint64
	pid   uint32 // the thread, as this process sees it
	flags uint32

	nr   int32 // struct seccomp_data from here on
	arch uint32
	ip   uint64
	args [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	errno int32 // negative
	flags uint32
}

const (
	// What one run may ask at the same time; the next waits. Each connection that is being made takes a thread.
	maxConnecting = 32
	// What is told of one run's harmless denials, each kind once; and of the hostile ones, each time.
	maxTold = 64

	// notifIDValid is SECCOMP_IOCTL_NOTIF_ID_VALID.
	notifIDValid = 0x40082102
)

// notifier answers the kernel's questions about one run. It ends when no task of the run is left, or with close.
type notifier struct {
	rules    []rule
	ports    []uint16
	redirect map[uint16]uint16
	denied   func(Denial)
	watch    *watcher // not nil: all calls are made as they would be, see look
	listener *os.File
	level    Level
	full     bool             // the run has the full network
	write    []string         // real paths of what the run may change
	served   map[serving]bool // the TCP sockets that the run listens on; of run's goroutine only, as the next
	// servedUnix are inodes of its Unix sockets that listen.
	servedUnix map[uint32]bool

	done chan struct{} // closed when run has returned

	mu         sync.Mutex
	closed     bool
	connecting map[int]bool // descriptors of connections that are being made
	slots      chan struct{}
	pending    sync.WaitGroup

	told    map[Denial]bool
	hostile int
}

// maxServed bounds how many sockets are remembered; those that are closed are forgotten then.
const maxServed = 1024

// notify takes over the listening descriptor.
func notify(p *Policy, rules []rule, listener int, watch *watcher) (*notifier, error) {
	if err := unix.SetNonblock(listener, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(listener))
	}
	n := &notifier{
		rules: rules, ports: p.Ports, redirect: p.Redirect, denied: p.Denied, watch: watch,
		listener: os.NewFile(uintptr(listener), "seccomp listener"),
		level:    p.Level, full: p.FullNetwork, write: p.realWrites(),
		served: make(map[serving]bool), servedUnix: make(map[uint32]bool), done: make(chan struct{}),
		connecting: make(map[int]bool), slots: make(chan struct{}, maxConnecting), told: make(map[Denial]bool),
	}
	if n.denied == nil {
		n.denied = func(Denial) {}
	}
	go n.run()
	return n, nil
}

// close ends all answers: the kernel then fails the run's calls as if it did not have them. It waits.
func (n *notifier) close() error {
	err := n.listener.Close()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for ended := false; !ended; {
		n.shutDown()
		select {
		case <-n.done:
			ended = true
		case <-again.C:
		}
	}
	if errors.Is(err, os.ErrClosed) { // the run had ended
		return nil
	}
	return err
}

// shutDown ends each connect(2) that waits. One that is about to is met the next time.
func (n *notifier) shutDown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for fd := range n.connecting {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	}
}

// run answers until the listener is closed or has nobody left to ask.
func (n *notifier) run() {
	defer close(n.done)
	defer n.pending.Wait()
	defer n.listener.Close()
	conn, err := n.listener.SyscallConn()
	if err != nil {
		return
	}
	for {
		var q notification
		var got bool
		err := conn.Read(func(fd uintptr) (ready bool) {
			got, ready = receive(int(fd), &q)
			return ready
		})
		if err != nil || !got {
			return
		}
		if q.id == 0 {
			continue // who asked has been killed meanwhile
		}
		n.answer(q)
	}
}

// receive takes the next question. Not ready is to be called again when the descriptor is; ready without one got is the
// end. A question of id 0 is none.
func receive(fd int, q *notification) (got, ready bool) {
	for {
		// The ioctl would block this thread, so it is made only when there is a question.
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 0); err == unix.EINTR {
			continue
		} else if err != nil {
			return false, true
		}
		switch {
		case poll[0].Revents&unix.POLLIN != 0:
		case poll[0].Revents != 0: // POLLHUP: no task is left
			return false, true
		default:
			return false, false
		}
		*q = notification{}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(q)))
		switch errno {
		case 0:
			return true, true
		case unix.EINTR:
		case unix.ENOENT:
			*q = notification{}
			return true, true
		default:
			return false, true
		}
	}
}

// answer decides one call. Of a connection the answer may come later.
func (n *notifier) answer(q notification) {
	if n.watch != nil {
		n.look(q)
		return
	}
	for _, r := range n.rules {
		if r.unasked || !r.holds(uint32(q.nr), q.args) {
			continue
		}
		switch {
		case r.verdict != decided:
			n.refuse(q, Denial{Call: r.name, Detail: detail(r.name, q.args), Hostile: r.hostile})
		case q.nr == unix.SYS_LISTEN:
			n.listen(q)
		default:
			n.connect(q)
		}
		return
	}
	n.reply(q, unix.EPERM) // a call that the filter did not ask for
}

// refuse answers EPERM and tells it.
func (n *notifier) refuse(q notification, d Denial) {
	n.reply(q, unix.EPERM)
	if d.Hostile {
		if n.hostile++; n.hostile > maxTold {
			return
		}
	} else {
		if n.told[d] || len(n.told) >= maxTold {
			return
		}
		n.told[d] = true
	}
	n.denied(d)
}

// reply answers with an errno; 0 is success. Who asked may be gone.
func (n *notifier) reply(q notification, errno unix.Errno) {
	r := response{id: q.id, errno: -int32(errno)}
	_ = n.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}

// asks says whether the caller of q still waits for an answer, so that its pid is its own.
func (n *notifier) asks(q notification) bool {
	return n.ioctl(notifIDValid, unsafe.Pointer(&q.id)) == nil
}

func (n *notifier) ioctl(request uintptr, arg unsafe.Pointer) error {
	conn, err := n.listener.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	err = conn.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}
