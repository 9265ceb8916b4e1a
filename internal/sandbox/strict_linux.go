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

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/proc"
)

// Level Strict is bubblewrap, which makes the namespaces and the mounts, then the init, then the stub, which opens sockets and
// takes the filter upon itself, then the program. So the program's process is a child of the init, which is a child of
// bubblewrap, the leader of the tree.

// strict is the part of a start for level Strict.
type strict struct {
	report *net.UnixConn // of the init; nil when inside has it
	inside *insider

	before  []string // bubblewrap's arguments before the folder
	init    []string // those of the init, before the program's name
	ports   []uint16
	sockets int // that the stub hands out
	outward []net.Listener
	dialer  *dialer
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
	args, err := wrap.arguments(s.policy)
	if err != nil {
		return err
	}
	s.strict = new(strict)
	s.notified = notifications() && !s.policy.NoNotifier

	// The order is that of the descriptors' numbers. The stub closes those from the init's report on, so what it opens begins
	// there.
	first := 3 + len(to.Extra)
	stubReport, socket, initReport := first, first+1, first+2
	ours, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the report pipe: %w", err)
	}
	s.report, s.theirs = ours, append(s.theirs, theirs)
	pair, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	s.socket, s.theirs = pair[0], append(s.theirs, pair[1])
	if pair, err = socketPair(unix.SOCK_SEQPACKET); err != nil {
		return err
	}
	s.theirs = append(s.theirs, pair[1])
	if s.strict.report, err = credentialed(pair[0]); err != nil {
		return err
	}
	init, err := initFile()
	if err != nil {
		return err
	}
	s.theirs = append(s.theirs, init)
	stub, err := s.stub(first, stubReport, socket, initReport)
	if err != nil {
		return err
	}
	s.theirs = append(s.theirs, stub)
	list, err := memoryText("arguments", strings.Join(args, "\x00")+"\x00")
	if err != nil {
		return err
	}
	s.theirs = append(s.theirs, list)

	self := func(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
	s.strict.before = []string{"--args", strconv.Itoa(initReport + 3)}
	s.strict.init = []string{"--", self(initReport + 1), strconv.Itoa(initReport), self(initReport + 2)}
	to.Path, to.Extra = wrap.path, append(to.Extra, s.theirs...)
	return nil
}

// stub makes the stub, which opens its sockets as the descriptors from next on.
func (s *start) stub(first, report, socket, next int) (*os.File, error) {
	m := new(image)
	m.call("close the descriptors that are not the run's", required, unix.SYS_CLOSE_RANGE, uint64(first), uint64(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC)
	m.call("close what the sandbox was made with", required, unix.SYS_CLOSE_RANGE, uint64(next), uint64(^uint32(0)), 0)
	m.call("take no core dumps", required, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, m.words(uint64(0), uint64(0)), 0)
	m.call("give up new privileges", required, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	if s.policy.ownNetwork() {
		s.strict.ports = s.policy.Ports
		s.strict.sockets = m.doors(s.policy.Ports, socket, next)
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

// doors adds the calls that open sockets in the run's network and hand them out by the descriptor socket: one that listens
// for each port, then those of the dialer. It returns how many.
func (m *image) doors(ports []uint16, socket, next int) int {
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
			st.outward = append(st.outward, l)
		}
	}
	return err
}

func (st *strict) close() error {
	var errs []error
	if st.report != nil {
		errs = append(errs, st.report.Close())
	}
	if st.inside != nil {
		errs = append(errs, st.inside.close())
	}
	for _, l := range st.outward {
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
		return nil, s.Started(ctx)
	}
	s.system.closeTheirs()
	report := st.report
	st.report = nil
	in, err := enter(ctx, report, leader)
	if err != nil {
		return nil, err
	}
	st.inside = in
	if err := s.Started(ctx); err != nil {
		return nil, err
	}
	return in, nil
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
	spec.Name, spec.Dir = s.Path, "/"
	return spec
}

// Listeners are what the run's Ports are served by, in their order, at level Strict without a full network: there they are
// ports of the run's own loopback. Else there are none, and Ports are the host's. They are there when the program was
// started, and are closed by Close at the latest.
func (s *Start) Listeners() []net.Listener {
	if s.system.strict == nil {
		return nil
	}
	return s.system.strict.outward
}

// Dial connects to a port of the loopback that the run has, for a program that serves there. At level Strict there can be
// maxDials connections at the same time; the next waits.
func (s *Start) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if st := s.system.strict; st != nil && st.dialer != nil {
		return st.dialer.dial(ctx, port)
	}
	return dialHost(ctx, port)
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

// memoryText is a file in memory that is read from its beginning.
func memoryText(name, text string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("write to memory: %w", err), f.Close())
	}
	return f, nil
}
