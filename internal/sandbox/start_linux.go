//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// start is the part of a Start that only Linux has. It is zero at level None.
type start struct {
	program  string
	image    *image
	policy   *Policy
	rules    []rule
	report   *os.File   // our end of the report pipe
	socket   *os.File   // our end of the pair by which the stub hands out the listener; nil without one
	theirs   []*os.File // what the process has by now, or never will
	prepared time.Time
	notified bool // a notifier is to be told of calls
	notifier *notifier
	watch    *watcher // of a report, or nil
	strict   *strict  // what only level Strict has, or nil
}

// Prepare makes what is to be started instead of the program at path, a name without a slash being looked up, with the
// descriptors extra. The policy is not changed, and must not be before Close. An error of a level that this system lacks
// wraps errors.ErrUnsupported.
func (p *Policy) Prepare(path string, extra []*os.File) (*Start, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	path, err := program(path)
	if err != nil {
		return nil, err
	}
	if p.Level == None {
		return &Start{Path: path, Extra: extra}, nil
	}
	s := &Start{Extra: slices.Clone(extra), system: start{program: path, policy: p, prepared: time.Now()}}
	prepare := s.system.prepare
	switch {
	case p.Report:
		prepare = s.system.prepareReport
	case p.Level == Strict:
		prepare = s.system.prepareStrict
	}
	if err := prepare(s); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare sandbox level %s: %w", p.Level, err), s.Close())
	}
	return s, nil
}

func (s *start) prepare(to *Start) error {
	abi, err := landlockABI()
	if err != nil {
		return fmt.Errorf("the kernel has no Landlock: %w", err)
	}
	notified := notifications() && !s.policy.NoNotifier
	if !notified && abi < 4 && !s.policy.FullNetwork {
		return errors.New("nothing holds connections: the kernel cannot be asked about them, and knows no rules for ports, which Linux 6.7 does")
	}
	s.notified = notified
	set, err := s.policy.ruleset(abi, notified)
	if err != nil {
		return err
	}
	first := 3 + len(to.Extra)
	ruleset := s.give(first, set)
	ours, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the report pipe: %w", err)
	}
	s.report = ours
	report, socket := s.give(first, theirs), -1
	if notified {
		pair, err := socketPair(unix.SOCK_STREAM)
		if err != nil {
			return err
		}
		s.socket, socket = pair[0], s.give(first, pair[1])
	}

	s.image = new(image)
	s.image.confine(first)
	if mark := s.policy.Mark; mark != 0 {
		s.image.call("take the run's mark", required, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_LOCKS, s.image.words(mark, mark), 0)
		to.mark = mark
	}
	s.image.call("enter the Landlock domain", required, unix.SYS_LANDLOCK_RESTRICT_SELF, uint64(ruleset), restrictFlags(abi, s.policy.Audit != nil))
	s.rules = s.policy.rules()
	if err := s.image.install(s.rules, socket); err != nil {
		return err
	}
	stub, err := s.image.write(s.program, report)
	if err != nil {
		return err
	}
	to.Path = selfFile(s.give(first, stub))
	to.Extra = append(to.Extra, s.theirs...)
	return nil
}

// give adds to what the process gets behind the program's own descriptors, and returns the number there.
func (s *start) give(first int, f *os.File) (number int) {
	s.theirs = append(s.theirs, f)
	return first + len(s.theirs) - 1
}

// selfFile is the path of a process' own descriptor.
func selfFile(number int) string { return fmt.Sprintf("/proc/self/fd/%d", number) }

// confine adds what every level has before its filter. Descriptors from first on are not the program's.
func (m *image) confine(first int) {
	m.call("close the descriptors that are not the run's", required, unix.SYS_CLOSE_RANGE, uint64(first), uint64(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC)
	m.call("take no core dumps", required, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, m.words(uint64(0), uint64(0)), 0)
	m.call("give up new privileges", required, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	m.dropCapabilities()
}

// dropCapabilities leaves the process none, and none to be had by execve(2), not even by root.
func (m *image) dropCapabilities() {
	if os.Geteuid() == 0 { // others may not, and need not: without new privileges execve gives none
		for c := range uint64(unix.CAP_LAST_CAP + 1) {
			m.call("drop capabilities", ignored, unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c)
		}
	}
	m.call("drop capabilities", required, unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL)
	header := m.words(uint32(unix.LINUX_CAPABILITY_VERSION_3), int32(0))
	m.call("drop capabilities", required, unix.SYS_CAPSET, header, m.words([6]uint32{}))
}

// install adds the filter, and hands out its listener by the descriptor socket unless that is -1.
func (m *image) install(rules []rule, socket int) error {
	program, err := filter(rules, socket >= 0)
	if err != nil {
		return err
	}
	m.installProgram(program, socket)
	return nil
}

func (m *image) installProgram(program []bpf.RawInstruction, socket int) {
	code := m.words(program)
	fprog := m.words(uint64(len(program)), code) // struct sock_fprog: a short, padded, and a pointer
	if socket < 0 {
		m.call("install the seccomp filter", required, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, fprog)
		return
	}
	control, message := m.message([]uint32{0}) // set by the next call
	flags := uint64(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	// A signal does not end a call that is being answered, to be made and told once more.
	if killable := flags | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV; knowsFlags(uintptr(killable)) { // it is none without a listener
		flags = killable
	}
	m.call("install the seccomp filter", control+unix.SizeofCmsghdr, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, fprog)
	m.call("hand out the seccomp listener", required, unix.SYS_SENDMSG, uint64(socket), message, 0)
}

// message makes one that hands out descriptors: struct cmsghdr with them, struct iovec for the one byte that must go with
// them, struct msghdr.
func (m *image) message(fds []uint32) (control, message uint64) {
	padded := append(slices.Clone(fds), make([]uint32, len(fds)%2)...)
	control = m.words(uint64(unix.SizeofCmsghdr+4*len(fds)), uint32(unix.SOL_SOCKET), uint32(unix.SCM_RIGHTS), padded)
	iovec := m.words(m.put([]byte{0}), uint64(1))
	return control, m.words(uint64(0), uint64(0), iovec, uint64(1), control, uint64(unix.SizeofCmsghdr+4*len(padded)), uint64(0))
}

// knowsFlags says whether the kernel takes these flags together for a filter: without a filter it fails in another way then.
func knowsFlags(flags uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, 0)
	return errno == unix.EFAULT
}

// notifications says whether the kernel can ask about calls, and hand out a run's sockets (Linux 5.6).
func notifications() bool { return tryNotifications() == nil }

// tryNotifications returns why it cannot: EPERM where a container's seccomp profile refuses it.
func tryNotifications() error {
	action := uint32(unix.SECCOMP_RET_USER_NOTIF)
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))); errno != 0 {
		return errno
	}
	if _, err := unix.PidfdGetfd(-1, 0, 0); err != unix.EBADF {
		return err
	}
	if !knowsFlags(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER) {
		return unix.EINVAL
	}
	return nil
}

// Started is called when the process was started. It waits until the process has become the program; an error says
// what could not be done, and the process ends with status 127.
func (s *Start) Started(ctx context.Context) error { return s.system.started(ctx) }

func (s *start) started(ctx context.Context) error {
	if s.report == nil {
		return nil
	}
	s.closeTheirs()
	report := s.report // which may be closed, and gone from s, before the function below has run
	stop := context.AfterFunc(ctx, func() { _ = report.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var listener error
	if s.watch != nil {
		if listener = s.awaitListener(ctx); ctx.Err() != nil {
			return listener
		}
	}
	var failure [9]byte
	n := 0
	for n < len(failure) {
		m, err := report.Read(failure[n:])
		if m == 0 && ctx.Err() != nil {
			return fmt.Errorf("confine %s: %w", s.program, context.Cause(ctx))
		}
		if m == 0 || err != nil {
			break
		}
		n += m
	}
	if n > 0 {
		return s.image.failure(failure[:n], s.program)
	}
	if s.watch != nil {
		return listener
	}
	if s.strict != nil {
		if err := s.strict.receive(s.socket); err != nil {
			return fmt.Errorf("confine %s: %w", s.program, err)
		}
	}
	if s.socket == nil || !s.notified {
		return nil
	}
	fds, err := receiveDescriptors(s.socket, 1)
	if err != nil {
		return fmt.Errorf("confine %s: it ended before it was confined: %w", s.program, err)
	}
	s.notifier, err = notify(s.policy, s.rules, fds[0], nil)
	return err
}

// receiveDescriptors takes so many descriptors that have been sent as one message.
func receiveDescriptors(socket *os.File, count int) ([]int, error) {
	conn, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var message [1]byte
	control := make([]byte, unix.CmsgSpace(4*count))
	n := 0
	cerr := conn.Control(func(fd uintptr) {
		_, n, _, _, err = unix.Recvmsg(int(fd), message[:], control, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	})
	if err := errors.Join(cerr, err); err != nil {
		return nil, fmt.Errorf("receive descriptors of the stub: %w", err)
	}
	missing := errors.New("receive descriptors of the stub: the message lacks some")
	list, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(list) != 1 {
		return nil, missing
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil || len(fds) != count {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, missing
	}
	return fds, nil
}

// Close ends what serves the run. Calls of the run that are asked about fail from then on, so it is for a run that has
// ended. It may be called again.
func (s *Start) Close() error { return s.system.close() }

func (s *start) close() error {
	s.closeTheirs()
	var errs []error
	if s.notifier != nil {
		errs = append(errs, s.notifier.close())
		s.notifier = nil
	}
	if s.strict != nil {
		errs = append(errs, s.strict.close())
	}
	for _, f := range []**os.File{&s.report, &s.socket} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}

func (s *start) closeTheirs() {
	for _, f := range s.theirs {
		_ = f.Close()
	}
	s.theirs = nil
}
