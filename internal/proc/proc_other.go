//go:build !linux

package proc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file is the best effort for systems without subreaper, cgroup and pidfd (macOS, the BSDs): trees are found by the
// parent links and process groups that ps prints, and killed by pid. What daemonised itself (new session, parent gone)
// is found only by its tag, where ps shows environments; a process without either is not found.

// pollInterval is how often a kill looks whether its victims are gone, for want of an event for processes of others.
const pollInterval = 10 * time.Millisecond

type system struct{}

type systemTree struct{}

// Sweep says what SweepAdopted kills. Without a subreaper there are no adopted orphans: only TagPrefix is obeyed.
type Sweep struct {
	Match     func(ProcInfo) bool
	TagPrefix string
	Cgroups   []string
}

func sysProcAttr(s *Spec) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: s.NewSession, Setpgid: !s.NewSession, Setctty: s.Terminal}
}

func (h *Host) open() error  { return nil }
func (h *Host) close() error { return nil }
func (h *Host) reap() bool   { return false }

func (h *Host) fork(t *Tree, path string, argv []string, attr *os.ProcAttr) error {
	p, err := os.StartProcess(path, argv, attr)
	if err != nil {
		return err
	}
	t.proc, t.pid = p, p.Pid
	return nil
}

// awaitLeader reaps the leader when it has exited.
func (h *Host) awaitLeader(t *Tree, c *child) {
	go func() {
		h.awaitExit(t.pid)
		h.mu.Lock()
		defer h.mu.Unlock()
		t.reapLeader(c)
	}()
}

// openPipe makes a pipe between this process and a child.
func openPipe(parentReads bool) (parent, child *os.File, err error) {
	r, w, err := os.Pipe()
	if parentReads {
		return r, w, err
	}
	return w, r, err
}

// awaitExit waits until a child of ours has exited and leaves it to be reaped.
func (h *Host) awaitExit(pid int) {
	kq, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer unix.Close(kq)
	var ev [1]unix.Kevent_t
	unix.SetKevent(&ev[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	ev[0].Fflags = unix.NOTE_EXIT
	for change := ev[:]; ; change = nil {
		n, err := unix.Kevent(kq, change, ev[:], nil)
		if n > 0 || err != nil && err != unix.EINTR { // ESRCH: it has exited already
			return
		}
	}
}

// Unlimited says that no limit is enforced: there are no cgroups.
func (t *Tree) Unlimited(limits Limits) error {
	if len(limits.Needs()) == 0 {
		return nil
	}
	return errNoCgroups
}

// HostLimits does not know what the host has.
func HostLimits() Limits { return Limits{} }

func keepDescriptors() error { return errors.ErrUnsupported }

// CoreOOMScore has no use here.
const CoreOOMScore = 0

// Seclude does nothing here.
func Seclude() error { return nil }

// NewMark returns none here.
func (h *Host) NewMark() uint64 { return 0 }

// MarkDescendants does nothing here.
func MarkDescendants(string) error { return nil }

// ConnectionUser tells nothing here.
func ConnectionUser(_, _ netip.AddrPort) (uint32, bool) { return 0, false }

func confine() error { return nil }

// Kin tells nothing here.
func (t *Tree) Kin() Kin { return Kin{} }

// KillBelow is not there: nothing ties an orphan to who started it.
func KillBelow(Proc, []Kin) ([]Proc, error) { return nil, errors.ErrUnsupported }

// Find is not there.
func Find(int) (Proc, error) { return Proc{}, errors.ErrUnsupported }

// Origin knows nothing here: the system does not tell.
func (h *Host) Origin(p Proc) (Origin, error) { return Origin{Proc: p}, nil }

// Ancestors are not known.
func Ancestors() []ProcInfo { return nil }

// OwnCgroups are none.
func OwnCgroups() []string { return nil }

// Args are not known.
func Args(int) []string { return nil }

// AddOOMScore does nothing: only Linux has such a score.
func AddOOMScore(int) error { return nil }

var errNoCgroups = errors.New("this system has no cgroups")

// Exceeded is nil: no limit is enforced.
func (t *Tree) Exceeded() *Exceeded { return nil }

// Enforces says that nothing is enforced.
func (h *Host) Enforces() ([]string, error) { return nil, errNoCgroups }

// LimitAll does nothing: there are no cgroups.
func (h *Host) LimitAll(Limits) error { return nil }

// Cgroup is "": there are none.
func (t *Tree) Cgroup() string { return "" }

// noteMembers remembers the leader's descendants while the way to them still exists.
func (t *Tree) noteMembers(rep *Report) {
	rep.Walks++
	tab, err := psTable()
	if err != nil {
		t.host.cfg.Log.Warn().Err(err).Str("run", t.run).Msg("note members of process tree")
		return
	}
	members := make(map[Proc]bool)
	for pid := range tab.below(map[int]bool{t.pid: true}) {
		members[Proc{Pid: pid}] = true
	}
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	if !t.reapedLocked() {
		t.members = members
	}
}

// askLeftovers does nothing here: what outlives the leader is killed at once.
func (t *Tree) askLeftovers(time.Time, *Report) {}

func (t *Tree) goneWithLeader(*Report) bool { return false }

// empty kills the leader, its group, its descendants and what was seen as a descendant, in rounds until one finds none.
func (t *Tree) empty(deadline time.Time, rep *Report) error {
	for {
		rep.Walks++
		tab, err := psTable()
		if err != nil {
			return &GhostError{Run: t.run, Err: err}
		}
		t.host.mu.Lock()
		roots := make(map[int]bool)
		for m := range t.members {
			roots[m.Pid] = true
		}
		if !t.reapedLocked() {
			roots[t.pid] = true
		}
		t.host.mu.Unlock()
		for pid, p := range tab {
			if p.PGid == t.pid {
				roots[pid] = true
			}
		}
		left := tab.killable(roots)
		if len(left) == 0 {
			break
		}
		if err := killAll(left, deadline); err != nil {
			return &GhostError{Run: t.run, Left: left, Err: err}
		}
		rep.Killed = append(rep.Killed, left...)
	}
	if !t.reapedBefore(deadline) {
		return &GhostError{Run: t.run, Left: []Proc{{Pid: t.pid, Comm: t.comm}}, Err: os.ErrDeadlineExceeded}
	}
	t.host.forget(t)
	return nil
}

func (h *Host) killSession(pid int) {
	tab, err := psTable()
	_ = unix.Kill(-pid, unix.SIGKILL)
	if err == nil {
		_ = killAll(tab.killable(map[int]bool{pid: true}), time.Now().Add(DefaultKill))
	}
}

// SweepAdopted kills what carries a tag under s.TagPrefix.
func (h *Host) SweepAdopted(ctx context.Context, s Sweep) ([]Proc, error) {
	if s.TagPrefix == "" {
		return nil, nil
	}
	return h.SweepTag(ctx, s.TagPrefix)
}

// SweepTag kills every process whose tag is prefix or lies below it, with its descendants.
func (h *Host) SweepTag(ctx context.Context, prefix string) ([]Proc, error) {
	if prefix == "" {
		return nil, errors.New("sweep processes by tag: the prefix is empty, which would mean every instance")
	}
	return h.sweep(ctx, prefix, []string{prefix})
}

// SweepRuns kills every process whose tag is that of one of the runs or lies below it, with its descendants.
func (h *Host) SweepRuns(ctx context.Context, runs []string) ([]Proc, error) {
	if slices.Contains(runs, "") {
		return nil, errors.New("sweep processes of runs: a run has no name, which would mean every run")
	}
	return h.sweep(ctx, strings.Join(runs, ", "), runs)
}

// sweep kills in rounds until one finds nothing.
func (h *Host) sweep(ctx context.Context, name string, prefixes []string) ([]Proc, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(DefaultKill)
	}
	var killed []Proc
	for {
		if ctx.Err() != nil {
			return killed, fmt.Errorf("sweep processes of %q: %w", name, context.Cause(ctx))
		}
		roots := make(map[int]bool)
		for _, prefix := range prefixes {
			tagged, err := taggedPids(h.cfg.Tag, prefix)
			if err != nil {
				return killed, err
			}
			maps.Copy(roots, tagged)
		}
		tab, err := psTable()
		if err != nil {
			return killed, err
		}
		left := tab.killable(roots)
		if len(left) == 0 {
			return killed, nil
		}
		if err := killAll(left, deadline); err != nil {
			return killed, &GhostError{Run: name, Left: left, Err: err}
		}
		killed = append(killed, left...)
	}
}

// Alive lists the living processes, this one excepted, whose environment carries DefaultTag with a value that is prefix
// or lies below it in the sense of a path.
func Alive(prefix string) ([]Proc, error) {
	tagged, err := taggedPids(DefaultTag, prefix)
	if err != nil {
		return nil, err
	}
	tab, err := psTable()
	if err != nil {
		return nil, err
	}
	var out []Proc
	for pid := range tagged {
		if p, ok := tab[pid]; ok && p.alive() && pid != os.Getpid() {
			out = append(out, p.Proc)
		}
	}
	return out, nil
}

// killAll stops all, so that none forks, then kills all and waits until none is left.
func killAll(ps []Proc, deadline time.Time) error {
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, p := range ps {
			if err := unix.Kill(p.Pid, sig); err != nil && err != unix.ESRCH {
				return fmt.Errorf("send %v to process %d: %w", sig, p.Pid, err)
			}
		}
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for time.Now().Before(deadline) {
		tab, err := psTable()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(ps, func(p Proc) bool { return tab[p.Pid].alive() && tab[p.Pid].Pid != 0 }) {
			return nil
		}
		<-tick.C
	}
	return os.ErrDeadlineExceeded
}

type table map[int]ProcInfo

// psTable is one look at all processes.
func psTable() (table, error) {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,pgid=,stat=,comm=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	tab := make(table)
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		pid, err1 := strconv.Atoi(f[0])
		ppid, err2 := strconv.Atoi(f[1])
		pgid, err3 := strconv.Atoi(f[2])
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("parse list of processes: %w", err)
		}
		tab[pid] = ProcInfo{
			Proc: Proc{Pid: pid, Comm: strings.Join(f[4:], " ")}, PPid: ppid, PGid: pgid, state: f[3][0], threads: 1,
		}
	}
	return tab, nil
}

// below is the set of roots and all their descendants.
func (tab table) below(roots map[int]bool) map[int]bool {
	out := make(map[int]bool)
	for pid := range tab {
		for up := pid; up > 1 && len(out) <= len(tab); up = tab[up].PPid {
			if roots[up] || out[up] {
				out[pid] = true
				break
			}
		}
	}
	return out
}

// killable lists what lives at and below roots, except this process and its ancestors.
func (tab table) killable(roots map[int]bool) []Proc {
	set := tab.below(roots)
	for up := os.Getpid(); up > 0; up = tab[up].PPid {
		delete(set, up)
	}
	var out []Proc
	for pid := range set {
		if p := tab[pid]; p.alive() {
			out = append(out, p.Proc)
		}
	}
	return out
}

// taggedPids finds processes by the environment that "ps -E" prints behind the command line.
func taggedPids(tag, prefix string) (map[int]bool, error) {
	out, err := exec.Command("ps", "-axEwwo", "pid=,command=").Output()
	if err != nil {
		return nil, fmt.Errorf("list environments of processes: %w", err)
	}
	pids := make(map[int]bool)
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		pid, err := strconv.Atoi(f[0])
		if err != nil {
			continue
		}
		for _, w := range f[1:] {
			if v, ok := strings.CutPrefix(w, tag+"="); ok && (prefix == "" || v == prefix || strings.HasPrefix(v, strings.TrimSuffix(prefix, "/")+"/")) {
				pids[pid] = true
			}
		}
	}
	return pids, nil
}

func (h *Host) cgroup() string { return "" }
