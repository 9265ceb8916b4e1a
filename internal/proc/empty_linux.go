package proc

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// empty kills what is left of the tree, in rounds until one finds nothing, and proves by that that it is empty.
//
// A round that finds nothing is cheap (one read of cgroup.events, one of our list of children). Only when something had
// to be killed is /proc searched for the tag as well, since something may have slipped through while killing.
func (t *Tree) empty(deadline time.Time, rep *Report) error {
	clean := true
	for {
		expired := !time.Now().Before(deadline)
		inCgroup, cgErr := t.emptyCgroup(deadline, rep)
		roots, walked, err := t.leftovers(true)
		if walked {
			rep.Walks++
		}
		if err != nil {
			return t.ghost(nil, err)
		}
		if len(roots) == 0 && cgErr != nil {
			return t.ghost(nil, cgErr)
		}
		if len(roots) == 0 && !inCgroup {
			if clean {
				break
			}
			rep.Walks++
			roots, err = t.host.tagged(t, func(tag string) bool { return tag == t.run })
			if err != nil {
				return t.ghost(nil, err)
			}
			if len(roots) == 0 {
				break
			}
		}
		clean = false
		if expired {
			return t.ghost(nil, os.ErrDeadlineExceeded)
		}
		killed, left, walks, err := t.host.kill(t, roots, deadline)
		rep.Killed = append(rep.Killed, killed...)
		rep.Walks += walks
		if len(left) > 0 {
			return t.ghost(left, errors.Join(cgErr, err))
		}
	}
	if !t.reapedBefore(deadline) {
		return t.ghost([]Proc{{Pid: t.pid, Start: t.start, Comm: t.comm}}, os.ErrDeadlineExceeded)
	}
	t.isEmpty()
	return nil
}

// goneWithLeader is the proof for the common case: the leader has ended, and a look like that of a round of empty finds
// nothing. False means that it must be looked closer.
//
// That the cgroup can be removed proves that no living process is in it (cgroups(7)), so it is not asked first. From then
// on it counts as empty: what is gone has no process.
func (t *Tree) goneWithLeader(rep *Report) bool {
	select {
	case <-t.exited:
	default:
		return false
	}
	if cg := t.sys.cg; cg.dir != "" {
		if len(t.host.sys.unified) > 0 {
			t.Exceeded() // what the kernel has counted goes with the cgroup
		}
		if t.sys.removed = cg.removeOne() == nil; !t.sys.removed {
			if populated, err := cg.populated(); err != nil || populated {
				return false
			}
		}
	}
	strays, walked, err := t.strays(false)
	if walked {
		rep.Walks++
	}
	if err != nil || len(strays) > 0 {
		return false
	}
	t.isEmpty()
	return true
}

// isEmpty ends the life of a tree that was proven empty.
func (t *Tree) isEmpty() {
	t.release()
	if t.sys.cg.dir != "" && !t.sys.removed {
		if err := t.sys.cg.remove(); err != nil {
			t.host.cfg.Log.Warn().Err(err).Str("run", t.run).Msg("an empty cgroup was not removed")
		}
	}
	t.host.forget(t)
}

// askLeftovers sends SIGTERM to what has outlived the leader and waits until it is gone or the deadline has passed. What it
// cannot reach is for the kill that follows.
func (t *Tree) askLeftovers(deadline time.Time, rep *Report) {
	left, walked, err := t.leftovers(false)
	if walked {
		rep.Walks++
	}
	if populated, cgErr := t.cgroupPopulated(); cgErr == nil && populated {
		left = append(left, t.sys.cg.procs()...)
	}
	if len(left) == 0 || err != nil {
		return
	}
	roots := make(map[int]bool)
	for _, p := range left {
		roots[p.Pid] = true
	}
	if tab, err := walk(); err == nil {
		rep.Walks++
		spared := t.host.spared(tab, t)
		for _, p := range tab.below(roots) {
			if !spared[p.Pid] {
				left = append(left, p)
			}
		}
	}
	asked := make(map[int]bool)
	var hs []handle
	for _, p := range left {
		if asked[p.Pid] || p.Pid == t.pid {
			continue
		}
		asked[p.Pid] = true
		if h, ok, err := hold(p); ok && err == nil {
			// A stopped process takes SIGTERM only when it is continued.
			_, _ = h.signal(unix.SIGTERM), h.signal(unix.SIGCONT)
			hs = append(hs, h)
		}
	}
	living := make(map[int]bool)
	for _, h := range waitDead(hs, deadline) {
		living[h.Pid] = true
	}
	for _, h := range hs {
		if !living[h.Pid] {
			rep.Killed = append(rep.Killed, h.Proc)
		}
		h.close()
	}
	t.host.reap()
}

// cgroupPopulated reports whether the tree has a cgroup with a process in it.
func (t *Tree) cgroupPopulated() (bool, error) {
	if t.sys.cg.dir == "" {
		return false, nil
	}
	return t.sys.cg.populated()
}

// emptyCgroup kills what is in the tree's cgroup and reports whether there was anything.
func (t *Tree) emptyCgroup(deadline time.Time, rep *Report) (bool, error) {
	populated, err := t.cgroupPopulated()
	if err != nil || !populated {
		return false, err
	}
	killed, err := t.sys.cg.kill(deadline)
	rep.Killed = append(rep.Killed, killed...)
	return true, err
}

// leftovers lists the roots of what lives of the tree: its leader, and orphans. kill is for strays.
func (t *Tree) leftovers(kill bool) (roots []ProcInfo, walked bool, err error) {
	select {
	case <-t.exited:
	default:
		// It may be reaped meanwhile and its pid be used again, but then with another start time.
		if p, err := readStat(t.pid); err == nil && p.Start == t.start && p.alive() {
			roots = append(roots, p)
		}
	}
	strays, walked, err := t.strays(kill)
	return append(roots, strays...), walked, err
}

// ghost builds the error for a tree that could not be emptied, or could not be proven empty because of err.
func (t *Tree) ghost(left []Proc, err error) error {
	named := make(map[int]bool)
	for _, p := range left {
		named[p.Pid] = true
	}
	roots, _, _ := t.leftovers(false)
	if t.sys.cg.dir != "" {
		roots = append(roots, t.sys.cg.procs()...)
	}
	for _, p := range roots {
		if !named[p.Pid] && p.alive() {
			named[p.Pid] = true
			left = append(left, p.Proc)
		}
	}
	return &GhostError{Run: t.run, Left: left, Err: err}
}
