package proc

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// awaitExit waits until a child of ours has exited and leaves it to be reaped.
//
// It waits by the runtime's poller. A call that blocks would hold a thread for each child, and a processor of the Go
// scheduler until that is taken away from it, while other runs have work to do.
func (h *Host) awaitExit(pid int) {
	if polledExit(pid) {
		return
	}
	for {
		// ECHILD would mean that someone else reaped it; who waits for it next will learn that.
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}

// polledExit waits until a child of ours has exited. It is false where that cannot be done without blocking: before
// Linux 5.10, or with too many files open.
func polledExit(pid int) bool {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	exited := false
	err = conn.Read(func(fd uintptr) bool {
		exited = hasExited(unix.P_PIDFD, int(fd))
		return exited
	})
	return err == nil && exited
}

// hasExited reports whether a child of ours has exited, or was reaped by someone else.
func hasExited(idType, id int) bool {
	var info unix.Siginfo
	_, err := retry(func() (int, error) {
		return 0, unix.Waitid(idType, id, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	})
	return err != nil || info.Signo != 0
}

// peek finds a child that has exited, without reaping it. pid is 0 if there is none, and ECHILD is returned if this
// process has no child at all.
//
// Waiting for "any child" is safe here and only here: WNOWAIT leaves the zombie to the goroutine that waits for that pid.
func peek() (pid int, err error) {
	var info unix.Siginfo
	for {
		err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	// siginfo_t: three ints, then a union aligned like a pointer, which for SIGCHLD begins with the pid (sigaction(2)).
	const ptr = unsafe.Sizeof(uintptr(0))
	const offset = (3*unsafe.Sizeof(int32(0)) + ptr - 1) / ptr * ptr
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), offset))), nil
}

// awaitLeader has nothing to do: the reaper meets every child that has exited.
func (h *Host) awaitLeader(*Tree, *child) {}

// reapBatch bounds how many remains are taken away at a time. Those of a program that forks without end come as fast as they
// go, and who is to stop it must have its turn.
const reapBatch = 256

// reap takes away the remains of leaders and orphans, one by one and by pid, at most reapBatch of them, and reports whether
// there may be more. The exit of a helper is left to its waiter, who kicks the reaper when done, since others may stand behind
// it. Leaders do not wait for that.
func (h *Host) reap() (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range reapBatch {
		pid, err := peek()
		if err != nil || pid == 0 {
			return false
		}
		switch c := h.started[pid]; {
		case c == nil:
			if !reapOne(pid) {
				return false
			}
		case c.tree == nil:
			for pid, c := range h.started {
				if c.tree != nil && hasExited(unix.P_PID, pid) {
					c.tree.reapLeader(c)
				}
			}
			return false
		default:
			c.tree.reapLeader(c)
		}
	}
	return true
}

func reapOne(pid int) bool {
	n, err := retry(func() (int, error) { return unix.Wait4(pid, nil, unix.WNOHANG, nil) })
	return err == nil && n == pid
}

// orphansLocked lists the living children of this process that it did not start, and whether that took a walk of /proc.
// The remains of dead ones are reaped on the way; dead, which may be nil, sees them before.
//
// A finding of none is exact, since mu is held: an orphan stays in the kernel's list until it is reaped, which takes mu, and a process
// that becomes an orphan during the listing does so because its parent died. If that parent was an orphan itself, it is
// found as a zombie and the listing is repeated; if not, the orphan that both descend from is found instead.
func (h *Host) orphansLocked(dead func(*ProcInfo)) (orphans []ProcInfo, walked bool, err error) {
	for {
		if _, err := peek(); errors.Is(err, unix.ECHILD) {
			return nil, walked, nil
		}
		pids, w, err := h.childPidsLocked()
		walked = walked || w
		if err != nil {
			return nil, walked, err
		}
		orphans = orphans[:0]
		again := false
		for _, pid := range pids {
			if h.started[pid] != nil {
				continue
			}
			p, err := readStat(pid)
			switch {
			case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
				again = true
			case err != nil:
				return nil, walked, err
			case p.alive():
				orphans = append(orphans, p)
			default:
				if dead != nil {
					dead(&p)
				}
				again = reapOne(pid) || again
			}
		}
		if !again || len(orphans) > 0 { // only the finding of none must be exact
			return orphans, walked, nil
		}
	}
}

// childPidsLocked lists the children of this process, but perhaps not those that it has started. The kernel's own list is
// only reliable while no child is being reaped; leaders are reaped under mu, but helpers are reaped by os/exec, so while
// there is one, /proc is walked.
func (h *Host) childPidsLocked() (pids []int, walked bool, err error) {
	if h.helpers == 0 && !h.sys.noChildFile {
		pids, err := adoptedFile()
		if err == nil {
			return pids, false, nil
		}
		h.sys.noChildFile = true
	}
	tab, err := walk()
	if err != nil {
		return nil, true, fmt.Errorf("list children: %w", err)
	}
	for pid, p := range tab {
		if p.PPid == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids, true, nil
}
