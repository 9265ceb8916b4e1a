//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/proc"
)

// Level Strict is bubblewrap, which makes the namespaces and the mounts, then the init, then the stub, which opens sockets and
// takes the filter upon itself, then the program. So the program's process is a child of the init, which is a child of
// bubblewrap, the leader of the tree.
//
// When this process is killed, bubblewrap is (proc.Spec.PdeathSignal), with it the init (--die-with-parent), and with that all
// processes of the run. One moment is left out: a process that bubblewrap has forked waits for bubblewrap, and has not asked
// for that signal yet. If bubblewrap is killed then, it waits for good. It is no process of the run, whose program was not
// started; it carries the run's tag and its core's mark, and is found by them or as an orphan.

// strict is the part of a start for level Strict.
type strict struct {
	report *net.UnixConn // of the init; nil when inner has it
	inner  *innerProgram

	args      *os.File // our end of a pipe by which bubblewrap gets list
	list      string   // of its arguments, each with a NUL behind it
	before    []string // its arguments before the folder
	init      []string // those of the init, before the program's name
	ports     []uint16
	sockets   int // that the stub hands out
	listeners []net.Listener
	dialer    *dialer
}

// maxExtra bounds the descriptors of a program: those behind are closed by the init one by one.
const maxExtra = 64

func (s *start) prepareStrict(to *Start) (err error) {
	wrap, err := s.policy.bubblewrap()
	if err != nil {
		return err
	}
	if len(to.Extra) > maxExtra {
		return fmt.Errorf("the program is given %d descriptors, at most %d are allowed", len(to.Extra), maxExtra)
	}
	s.strict = new(strict)
	s.notified = notifications() && !s.policy.NoNotifier

	first := 3 + len(to.Extra)
	ours, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the report pipe: %w", err)
	}
	s.report = ours
	stubReport := s.give(first, theirs)
	pair, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	s.socket = pair[0]
	socket := s.give(first, pair[1])
	if pair, err = socketPair(unix.SOCK_SEQPACKET); err != nil {
		return err
	}
	initReport := s.give(first, pair[1])
	if s.strict.report, err = credentialed(pair[0]); err != nil {
		return err
	}
	// The stub closes the descriptors from here on, so what it opens begins here.
	stubFile, err := s.stub(first, stubReport, socket, initReport)
	if err != nil {
		return err
	}
	stub := s.give(first, stubFile)
	file, err := initFile()
	if err != nil {
		return err
	}
	init := s.give(first, file)
	args, err := wrap.arguments(s.policy, func(path string) (string, error) {
		if len(s.theirs) == maxSources {
			return "", fmt.Errorf("show %s: the sandbox shows %d files and folders already, the most that it can: grant folders that hold several", path, maxSources)
		}
		f, err := openSource(path)
		if err != nil {
			return "", err
		}
		return selfFile(s.give(first, f)), nil
	})
	if err != nil {
		return err
	}
	theirs, ours, err = os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe for the arguments: %w", err)
	}
	s.strict.args, s.strict.list = ours, strings.Join(args, "\x00")+"\x00"
	s.strict.before = []string{"--args", strconv.Itoa(s.give(first, theirs))}
	s.strict.init = []string{"--", selfFile(init), strconv.Itoa(initReport), selfFile(stub)}
	to.Path, to.Extra = wrap.path, append(to.Extra, s.theirs...)
	return nil
}

// maxSources bounds the files and folders that a run is shown.
const maxSources = 512

// openSource opens a real path for bubblewrap to show it: if it were opened by its path only then, and lay where another run
// may write, it could lead elsewhere.
func openSource(path string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("show %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// stub makes the stub, which opens its sockets as the descriptors from next on.
func (s *start) stub(first, report, socket, next int) (*os.File, error) {
	m := new(image)
	m.confine(first)
	m.call("close what the sandbox was made with", required, unix.SYS_CLOSE_RANGE, uint64(next), uint64(^uint32(0)), 0)
	if s.policy.ownNetwork() {
		s.strict.ports = s.policy.Ports
		s.strict.sockets = m.openSockets(s.policy.Ports, socket, next)
	}
	s.rules = s.policy.rules()
	if !s.notified {
		socket = -1
	}
	if err := m.install(s.rules, socket); err != nil {
		return nil, err
	}
	s.image = m
	return m.write(s.program, report)
}

// openSockets adds the calls that open sockets in the run's network and hand them out by the descriptor socket: one that listens
// for each port, then those of the dialer. It returns how many.
func (m *image) openSockets(ports []uint16, socket, next int) int {
	var fds []uint32
	open := func(flags uint64) uint64 {
		fd := next + len(fds)
		fds = append(fds, uint32(fd))
		m.call("open a socket", required, unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
		return uint64(fd)
	}
	const backlog = 128
	for _, port := range ports {
		fd := open(0)
		address := m.words(uint16(unix.AF_INET), port>>8|port<<8, [4]byte{127, 0, 0, 1}, uint64(0))
		m.call(fmt.Sprintf("bind port %d of its loopback", port), required, unix.SYS_BIND, fd, address, unix.SizeofSockaddrInet4)
		m.call(fmt.Sprintf("listen on port %d of its loopback", port), required, unix.SYS_LISTEN, fd, backlog)
	}
	for range maxDials {
		open(unix.SOCK_NONBLOCK)
	}
	_, message := m.message(fds)
	m.call("hand out its sockets", required, unix.SYS_SENDMSG, uint64(socket), message, 0)
	return len(fds)
}

// receive takes the sockets that the stub has handed out.
func (st *strict) receive(socket *os.File) error {
	if st.sockets == 0 {
		return nil
	}
	fds, err := receiveDescriptors(socket, st.sockets)
	if err != nil {
		return err
	}
	st.dialer = newDialer(fds[len(st.ports):])
	for _, fd := range fds[:len(st.ports)] {
		f := os.NewFile(uintptr(fd), "listener")
		l, lerr := net.FileListener(f)
		if err = errors.Join(err, lerr, f.Close()); lerr == nil {
			st.listeners = append(st.listeners, l)
		}
	}
	return err
}

// close may be called again.
func (st *strict) close() error {
	var errs []error
	if st.report != nil {
		errs = append(errs, st.report.Close())
		st.report = nil
	}
	if st.args != nil {
		errs = append(errs, st.args.Close())
		st.args = nil
	}
	if st.inner != nil {
		errs = append(errs, st.inner.close())
		st.inner = nil
	}
	for _, l := range st.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if st.dialer != nil {
		st.dialer.close()
	}
	return errors.Join(errs...)
}

// enter is proc.Spec.Enter.
func (s *Start) enter(ctx context.Context, leader int) (proc.Inner, error) {
	st := s.system.strict
	if st == nil {
		if p := s.system.policy; p != nil && p.Audit != nil {
			p.Audit.claim(leader, s.system.prepared)
		}
		return nil, s.Started(ctx)
	}
	s.system.closeTheirs()
	if err := st.begin(ctx); err != nil {
		return nil, err
	}
	report := st.report
	st.report = nil
	in, err := enter(ctx, report, leader)
	if err != nil {
		return nil, err
	}
	st.inner = in
	if err := s.Started(ctx); err != nil {
		return nil, err
	}
	return in, nil
}

// begin gives bubblewrap its arguments. So it has forked nothing before it is bounded itself (proc.Spec.Limits), for what it
// forks to be.
func (st *strict) begin(ctx context.Context) error {
	args := st.args
	stop := context.AfterFunc(ctx, func() { _ = args.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := args.WriteString(st.list)
	err = errors.Join(err, args.Close())
	st.args = nil
	if err != nil && !errors.Is(err, unix.EPIPE) { // EPIPE: it has ended, which is seen
		return fmt.Errorf("give bubblewrap its arguments: %w", err)
	}
	return nil
}

// around puts bubblewrap's arguments before the program's.
func (s *Start) around(spec proc.Spec) proc.Spec {
	st := s.system.strict
	if st == nil {
		return spec
	}
	dir := spec.Dir
	if dir == "" {
		dir, _ = os.Getwd()
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	spec.Args = slices.Concat(st.before, []string{"--chdir", dir}, st.init, []string{spec.Name}, spec.Args)
	spec.Name, spec.Dir, spec.Terminal = s.Path, "/", false // the init's child takes the terminal, whose session is another
	return spec
}

// Listeners are what the run's Ports are served by, in their order, at level Strict without a full network: there they are
// ports of the run's own loopback. Else there are none, and Ports are the host's. They are there when the program was
// started, and are closed by Close at the latest.
func (s *Start) Listeners() []net.Listener {
	if s.system.strict == nil {
		return nil
	}
	return s.system.strict.listeners
}

// Dial connects to a port of the loopback that the run has, for a program that serves there, once it was started. At level
// Strict there can be eight connections at the same time; the next waits.
func (s *Start) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	st := s.system.strict
	switch {
	case st == nil || st.sockets == 0:
		return dialHost(ctx, port)
	case st.dialer == nil:
		return nil, errNotEntered
	}
	return st.dialer.dial(ctx, port)
}

func socketPair(kind int) (pair [2]*os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return pair, fmt.Errorf("make a socket pair: %w", err)
	}
	_ = unix.SetNonblock(fds[0], true)
	for i, fd := range fds {
		pair[i] = os.NewFile(uintptr(fd), "socket pair")
	}
	return pair, nil
}

// credentialed is a socket by which each message tells who has sent it (unix(7), SO_PASSCRED). The file is closed.
func credentialed(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	if err := unix.SetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return nil, fmt.Errorf("ask for credentials: %w", err)
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("make the init's report: %w", err)
	}
	return conn.(*net.UnixConn), nil
}
