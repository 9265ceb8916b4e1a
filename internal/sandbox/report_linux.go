//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/proc"
)

func canReport() error {
	if !notifications() {
		return fmt.Errorf("the kernel cannot ask about a run's calls: %w", errors.ErrUnsupported)
	}
	sets, err := capabilities()
	if err != nil {
		return err
	}
	// To drop them from the bounding set again takes SETPCAP, and only of root execve makes capabilities.
	for _, c := range []int{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP} {
		if os.Geteuid() != 0 || sets[c/32].Effective&(1<<(c%32)) == 0 {
			return ErrNoNewPrivileges
		}
	}
	return nil
}

func capabilities() (sets [2]unix.CapUserData, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return sets, fmt.Errorf("read the capabilities: %w", err)
	}
	return sets, nil
}

// prepareReport makes a stub that takes nothing upon itself but to be watched.
func (s *start) prepareReport(to *Start) error {
	named := *s.policy
	named.Write = append(existing(devices()), named.Write...)
	granted, err := named.resolve()
	if err != nil {
		return err
	}
	s.watch = newWatcher(granted.named, named.Broad)
	s.notified = true
	s.rules = reportRules(s.policy)

	ours, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the report pipe: %w", err)
	}
	first := 3 + len(to.Extra)
	s.report = ours
	report := s.give(first, theirs)
	pair, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	s.socket = pair[0]
	socket := s.give(first, pair[1])

	s.image = new(image)
	s.image.call("close the descriptors that are not the run's", required, unix.SYS_CLOSE_RANGE, uint64(first), uint64(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC)
	if s.policy.NoNewPrivileges {
		s.image.call("give up new privileges", required, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	}
	program, err := watching(s.rules)
	if err != nil {
		return err
	}
	s.image.installProgram(program, socket)
	if !s.policy.NoNewPrivileges {
		to.keepCapabilities = true
		if err := s.image.dropReaching(); err != nil {
			return err
		}
	}
	stub, err := s.image.write(s.program, report)
	if err != nil {
		return err
	}
	to.Path = selfFile(s.give(first, stub))
	to.Extra = append(to.Extra, s.theirs...)
	return nil
}

// dropReaching takes the capabilities that proc takes from every run, which the stub has kept until the filter was there.
func (m *image) dropReaching() error {
	sets, err := capabilities()
	if err != nil {
		return err
	}
	var bounding [2]uint32
	for c := range unix.CAP_LAST_CAP + 1 {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		taken := slices.Contains(proc.Reaching(), c)
		switch bit := uint32(1) << (c % 32); {
		case taken:
			sets[c/32].Inheritable &^= bit
			m.call("drop capabilities", ignored, unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, uint64(c))
			if err == nil && has == 1 {
				m.call("drop capabilities", required, unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uint64(c))
			}
		case err == nil && has == 1:
			bounding[c/32] |= bit
		}
	}
	// Of root's program execve makes the bounding set of the next, and what is inheritable.
	header := m.words(uint32(unix.LINUX_CAPABILITY_VERSION_3), int32(0))
	var words [6]uint32
	for i := range sets {
		words[3*i], words[3*i+1], words[3*i+2] = bounding[i], bounding[i], sets[i].Inheritable
	}
	m.call("drop capabilities", required, unix.SYS_CAPSET, header, m.words(words))
	return nil
}

// awaitListener waits for the listener, which the stub hands out before it becomes the program: to do so it needs the
// notifier's leave. Without one the stub has failed, and has said so.
func (s *start) awaitListener(ctx context.Context) error {
	socket := s.socket
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	if err := conn.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return err != nil && !errors.Is(err, unix.EINTR) || n > 0
	}); err != nil {
		return fmt.Errorf("wait for the seccomp listener of %s: %w", s.program, errors.Join(err, context.Cause(ctx)))
	}
	fds, err := receiveDescriptors(s.socket, 1)
	if err != nil {
		return fmt.Errorf("watch %s: it ended before it was watched: %w", s.program, err)
	}
	s.notifier, err = notify(s.policy, s.rules, fds[0], s.watch)
	return err
}
