package proc

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// handle is a process held by a pidfd: unlike a pid, it never comes to mean another process.
type handle struct {
	ProcInfo
	fd int
}

// hold opens a pidfd for the process that p was read from. ok is false when that process is gone, even if its pid is in
// use again: the start time is read after the pidfd was opened.
func hold(p ProcInfo) (h handle, ok bool, err error) {
	fd, err := openPidfd(p.Pid)
	if errors.Is(err, unix.ESRCH) {
		return handle{}, false, nil
	}
	if err != nil {
		return handle{}, false, fmt.Errorf("open pidfd of process %d: %w", p.Pid, err)
	}
	now, err := readStat(p.Pid)
	if err != nil || now.Start != p.Start || !now.alive() {
		_ = unix.Close(fd)
		return handle{}, false, nil
	}
	return handle{p, fd}, true, nil
}

// openPidfd opens a pidfd, or returns ESRCH. Kernels before 6.9 say EINVAL of a process that is just being reaped.
func openPidfd(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.EINVAL) {
		err = unix.ESRCH
	}
	return fd, err
}

// signal sends sig; a process that is gone is no error.
func (h handle) signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(h.fd, sig, nil, 0)
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("send %v to process %d: %w", sig, h.Pid, err)
}

func (h handle) close() { _ = unix.Close(h.fd) }

// waitDead waits until every process has ended (a zombie has) or the deadline has passed, and returns those that live.
func waitDead(hs []handle, deadline time.Time) []handle {
	left := hs
	for len(left) > 0 {
		// Poll takes at most RLIMIT_NOFILE entries, and each entry is an open file, so this always fits.
		fds := make([]unix.PollFd, len(left))
		for i, h := range left {
			fds[i] = unix.PollFd{Fd: int32(h.fd), Events: unix.POLLIN}
		}
		n, err := poll(fds, deadline)
		if n == 0 || err != nil {
			return left
		}
		var alive []handle
		for i, h := range left {
			if fds[i].Revents == 0 {
				alive = append(alive, h)
			}
		}
		left = alive
	}
	return nil
}

// poll is poll(2) with a deadline; it returns 0 when that has passed.
func poll(fds []unix.PollFd, deadline time.Time) (int, error) {
	for {
		ms := int(time.Until(deadline).Milliseconds()) + 1
		n, err := unix.Poll(fds, max(ms, 0))
		if err != unix.EINTR {
			return n, err
		}
	}
}
