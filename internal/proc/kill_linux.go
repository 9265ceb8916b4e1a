package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// maxHolds bounds the walks of one hunt; a tree that still grows then is killed as far as it is held, and the caller's
// next round goes on with the rest.
const maxHolds = 16

// hunt kills process trees by ancestry: it stops them top down until a walk finds no process that is not held, and only
// then kills. Killing a parent first would make its children orphans that nothing ties to their run.
type hunt struct {
	spared func(table) map[int]bool // by pid: whom it must not touch
	tree   *Tree                    // for which tree, or nil
	held   map[int]handle
	group  map[int]bool // process groups of which no member is a stranger
	walks  int
	err    error // first error
}

// kill ends the processes in roots and all below them, except what belongs to other live trees. It returns who was
// killed and who lives on at the deadline.
func (h *Host) kill(t *Tree, roots []ProcInfo, deadline time.Time) (killed, left []Proc, walks int, err error) {
	x := newHunt(t, func(tab table) map[int]bool { return h.spared(tab, t) })
	killed, left = x.kill(roots, deadline)
	h.reap()
	return killed, left, x.walks, x.err
}

func newHunt(t *Tree, spared func(table) map[int]bool) *hunt {
	return &hunt{spared: spared, tree: t, held: make(map[int]handle), group: make(map[int]bool)}
}

func (x *hunt) kill(roots []ProcInfo, deadline time.Time) (killed, left []Proc) {
	// No walk before the first signal: a process that forks and exits all the time is gone after one.
	for _, p := range roots {
		x.hold(p)
	}
	for x.walks < maxHolds && time.Now().Before(deadline) && x.holdMore() {
	}
	for pgid := range x.group {
		_ = unix.Kill(-pgid, unix.SIGKILL)
	}
	var hs []handle
	for _, p := range x.held {
		x.note(p.signal(unix.SIGKILL))
		killed = append(killed, p.Proc)
		hs = append(hs, p)
	}
	for _, p := range waitDead(hs, deadline) {
		left = append(left, p.Proc)
	}
	for _, p := range hs {
		p.close()
	}
	return killed, left
}

// holdMore walks once and stops what is new. It reports whether it found anything new.
func (x *hunt) holdMore() bool {
	if len(x.held) == 0 {
		return false
	}
	tab, err := walk()
	x.walks++
	if err != nil {
		x.note(err)
		return false
	}
	spared := x.spared(tab)
	roots := make(map[int]bool)
	for pid := range x.held {
		roots[pid] = true
	}
	grown := false
	for _, p := range tab.below(roots) {
		if !spared[p.Pid] && p.alive() {
			grown = x.hold(p) || grown
		}
	}
	x.holdGroups(tab)
	return grown
}

// hold stops one process and reports whether it is new. Once held, its pid cannot be reused unnoticed: the handle tells.
func (x *hunt) hold(p ProcInfo) bool {
	if _, known := x.held[p.Pid]; known {
		return false
	}
	// Within the leader's session or group there are no strangers.
	if x.tree != nil && (p.Sid == x.tree.pid || p.PGid == x.tree.pid) {
		x.stopGroup(p.PGid)
	}
	h, ok, err := hold(p)
	x.note(err)
	if !ok {
		return false
	}
	x.held[p.Pid] = h
	x.note(h.signal(unix.SIGSTOP))
	return true
}

// stopGroup signals a whole process group. Unlike signals to its members one by one, that leaves no gap for a fork: the
// kernel lets a fork fail while its parent has a signal pending.
//
// A group has no pidfd. Its number is safe because a member was seen a moment ago: pids are given out in turn, so it would
// take a full turn of all pids within that moment for it to mean other processes.
func (x *hunt) stopGroup(pgid int) {
	if pgid > 1 && pgid != unix.Getpgrp() && !x.group[pgid] {
		x.group[pgid] = true
		_ = unix.Kill(-pgid, unix.SIGSTOP)
	}
}

// holdGroups stops the groups of which every living member is held.
func (x *hunt) holdGroups(tab table) {
	strangers := make(map[int]bool)
	for pid, p := range tab {
		if _, held := x.held[pid]; !held && p.alive() {
			strangers[p.PGid] = true
		}
	}
	for _, h := range x.held {
		if p, ok := tab[h.Pid]; ok && !strangers[p.PGid] {
			x.stopGroup(p.PGid)
		}
	}
}

func (x *hunt) note(err error) {
	if x.err == nil {
		x.err = err
	}
}

// killSession kills every process in the session that a helper leads.
func (h *Host) killSession(sid int) {
	_ = unix.Kill(-sid, unix.SIGKILL)
	tab, err := walk()
	if err != nil {
		h.cfg.Log.Warn().Err(err).Int("pid", sid).Msg("kill session of helper")
		return
	}
	for _, p := range tab {
		if p.Sid != sid || !p.alive() {
			continue
		}
		hd, ok, err := hold(p)
		if ok {
			err = hd.signal(unix.SIGKILL)
			hd.close()
		}
		if err != nil {
			h.cfg.Log.Warn().Err(err).Int("pid", p.Pid).Msg("kill session of helper")
		}
	}
}
