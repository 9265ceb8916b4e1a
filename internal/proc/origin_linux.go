package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Find returns the process with the pid. The error is ErrGone if there is none that lives.
func Find(pid int) (Proc, error) {
	p, err := readStat(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && !p.alive() {
		return Proc{}, ErrGone
	}
	return p.Proc, err
}

// Peer returns the process that connected to the socket fd at its other end (unix(7), SO_PEERCRED), and its effective
// user id. The process is zero if it is in a pid namespace that this one does not see. The error is ErrGone if it has
// ended.
func Peer(fd int) (p Proc, uid uint32, err error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Proc{}, 0, err
	}
	if c.Pid == 0 {
		return Proc{}, c.Uid, nil
	}
	p, err = Find(int(c.Pid))
	if err != nil {
		return Proc{}, c.Uid, err
	}
	// Since Linux 6.5 the kernel holds the process itself: if that lives on after its pid was looked up, it is the one
	// that was found. Before, the look so soon after the connection has to do.
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case err == nil:
		defer unix.Close(pidfd)
		if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); errors.Is(err, unix.ESRCH) {
			return Proc{}, c.Uid, ErrGone
		}
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENODATA):
		return Proc{}, c.Uid, ErrGone
	}
	return p, c.Uid, nil
}

// Origin tells where a living process comes from. The error is ErrGone if it has ended.
func (h *Host) Origin(p Proc) (Origin, error) {
	o := Origin{Proc: p}
	self := os.Getpid()
	if p.Pid == self {
		return o, nil
	}
	chain, end, err := climb(p.Pid, func(pid int) bool { return pid == self }, ancestors())
	if err != nil {
		return o, err
	}
	if chain[0].Start != p.Start {
		return o, ErrGone
	}
	o.Above = chain[1:]
	h.placeIn(&o, chain[len(chain)-1], end)
	o.Tag = readTag(p.Pid, h.cfg.Tag)
	o.Cgroups = cgroupsOf(strconv.Itoa(p.Pid))
	o.Marked = lockLimit(strconv.Itoa(p.Pid)) < h.sys.lockLimit
	if now, err := readStat(p.Pid); err != nil || now.Start != p.Start {
		return o, ErrGone // what was read last may be another's
	}
	return o, nil
}

// placeIn says by which child of this process o descends from it. last is the end of its ancestry, whose parent is end.
func (h *Host) placeIn(o *Origin, last ProcInfo, end int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range h.trees {
		// A leader that may not be looked at is known by its pid alone, which is its own until it is reaped.
		if h.started[t.pid] != nil && (t.pid == last.Pid && t.start == last.Start || t.pid == end) {
			o.Below, o.Tree = true, t.run
			return
		}
	}
	if end == os.Getpid() {
		o.Below, o.Inherited = true, h.sys.inherited[Proc{Pid: last.Pid, Start: last.Start}]
	}
}

// Ancestors returns this process and those above it, the nearest first.
func Ancestors() []ProcInfo {
	chain, _, _ := climb(os.Getpid(), func(int) bool { return false }, nil)
	return chain
}

func ancestors() map[int]bool {
	out := map[int]bool{}
	for _, p := range Ancestors() {
		out[p.Pid] = true
	}
	return out
}

// climb lists a process and its ancestors up to the one whose parent, end, is accepted by stop, is in known, or cannot
// be looked at: it is 0, or /proc hides it. Each parent was that of its child when it was looked at, so that no pid
// that was given to another process meanwhile leads astray. The error is ErrGone if the process has ended.
func climb(pid int, stop func(int) bool, known map[int]bool) (chain []ProcInfo, end int, err error) {
	for range maxClimbs {
		first, err := readStat(pid)
		if err != nil || !first.alive() {
			return nil, 0, ErrGone
		}
		chain = []ProcInfo{first}
		for {
			last := &chain[len(chain)-1]
			if last.PPid == 0 || stop(last.PPid) || known[last.PPid] {
				return chain, last.PPid, nil
			}
			parent, hidden := readStat(last.PPid)
			again, err := readStat(last.Pid)
			if err != nil || again.Start != last.Start {
				break // it has ended, and its children have another parent
			}
			if again.PPid != last.PPid {
				*last = again
				continue
			}
			if hidden != nil {
				return chain, last.PPid, nil
			}
			chain = append(chain, parent)
		}
	}
	return nil, 0, fmt.Errorf("find the ancestors of process %d: they end too fast", pid)
}

// cgroupsOf are the paths of a process's cgroups in all hierarchies, as seen from our cgroup namespace.
func cgroupsOf(pid string) []string {
	text, err := readFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return nil
	}
	var paths []string
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 {
			paths = append(paths, f[2])
		}
	}
	return paths
}

// OwnCgroups are the paths of this process' cgroups, in all hierarchies.
func OwnCgroups() []string { return cgroupsOf("self") }

// Args are the arguments of a process, its program's name first, as it shows them.
func Args(pid int) []string {
	text, err := readFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00")
}
