package daemon

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Handover holds duplicates of listening sockets for the program that comes next.
// As long as it does, connections wait in the sockets' backlogs although nobody
// accepts them, so none is refused. Release or a successful Exec ends it.
type Handover struct {
	mu      sync.Mutex
	sockets map[string]held
}

// held is a socket of a Handover.
type held struct {
	fd   int
	unix *SocketListener // nil if it is none, and has no file
	kept bool            // the file was the manager's before
}

// Pass prepares to hand listeners over, by the names that Inherit knows. They can
// then be closed; the files of unix sockets stay. A listener is one of package
// net or a SocketListener.
func Pass(listeners map[string]net.Listener) (*Handover, error) {
	h := &Handover{sockets: map[string]held{}}
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		if name != Socket && name != API {
			h.Release()
			return nil, fmt.Errorf("hand over listening sockets: the name %q is unknown, want %s or %s", name, Socket, API)
		}
		fd, err := duplicate(listeners[name])
		if err != nil {
			h.Release()
			return nil, fmt.Errorf("hand over the socket %s: %w", name, err)
		}
		one := held{fd: fd}
		if l, ok := listeners[name].(*SocketListener); ok {
			one.unix, one.kept = l, l.Kept()
			l.Keep(true)
		}
		h.sockets[name] = one
	}
	return h, nil
}

// duplicate returns a duplicate of a listener's descriptor, closed on exec.
func duplicate(l net.Listener) (int, error) {
	has, ok := l.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("a %T has no descriptor", l)
	}
	raw, err := has.SyscallConn()
	if err != nil {
		return 0, err
	}
	var fd int
	var failed error
	err = raw.Control(func(own uintptr) { fd, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, firstDescriptor) })
	return fd, errors.Join(err, failed)
}

// Listeners returns listeners on the sockets, for a program that stays after all
// although it has closed its own. It does not end the handover.
func (h *Handover) Listeners() (map[string]Inherited, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := map[string]Inherited{}
	for name, one := range h.sockets {
		fd, err := unix.FcntlInt(uintptr(one.fd), unix.F_DUPFD_CLOEXEC, firstDescriptor)
		if err == nil {
			list[name], err = reopened(name, fd, one.kept)
		}
		if err != nil {
			for _, l := range list {
				if l.Listener != nil {
					l.Close()
				}
			}
			return nil, fmt.Errorf("listen on the socket %s again: %w", name, err)
		}
	}
	for name, one := range h.sockets {
		one.unix = nil // the new listener owns the file
		h.sockets[name] = one
	}
	return list, nil
}

func reopened(name string, fd int, kept bool) (Inherited, error) {
	l, err := open(descriptor{name: name, fd: fd})
	return Inherited{l, kept}, err
}

// Exec replaces this program by another in the same process, execve(2): with
// args, of which the first is the program's name, and environ, to which it adds
// what Inherit reads. It returns only if that failed, and everything is as
// before then: it can be tried again, with another program.
func (h *Handover) Exec(program string, args, environ []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	environ = append(WithoutSockets(environ), h.variables()...)
	// No child may be forked while the descriptors would go to it.
	syscall.ForkLock.Lock()
	err := h.closeOnExec(false)
	if err == nil {
		err = syscall.Exec(program, args, environ)
	}
	err = errors.Join(err, h.closeOnExec(true))
	syscall.ForkLock.Unlock()
	return fmt.Errorf("replace this program by %s: %w", program, err)
}

// variables tell the next program what it inherits.
func (h *Handover) variables() []string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(h.sockets)) {
		pair := name + "=" + strconv.Itoa(h.sockets[name].fd)
		if h.sockets[name].kept {
			pair += keptMark
		}
		pairs = append(pairs, pair)
	}
	if len(pairs) == 0 {
		return nil
	}
	return []string{listenersVariable + "=" + strings.Join(pairs, ","), pidVariable + "=" + strconv.Itoa(os.Getpid())}
}

func (h *Handover) closeOnExec(on bool) error {
	flags := 0
	if on {
		flags = unix.FD_CLOEXEC
	}
	var errs []error
	for _, one := range h.sockets {
		_, err := unix.FcntlInt(uintptr(one.fd), unix.F_SETFD, flags)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Release gives the handover up. The listeners that it was made of own their files
// again, also those that are closed, unless there are new ones by Listeners. It may be
// called more than once.
func (h *Handover) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.sockets {
		unix.Close(one.fd)
		if one.unix != nil {
			one.unix.Keep(one.kept)
		}
	}
	h.sockets = nil
}
