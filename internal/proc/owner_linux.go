package proc

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// identify adds to p what it takes another read to know: the run that the process is of.
func (h *Host) identify(p ProcInfo) ProcInfo {
	p.Tag = readTag(p.Pid, h.cfg.Tag)
	p.Cgroup = readCgroup(strconv.Itoa(p.Pid))
	return p
}

// ownerLocked says to which live tree an orphan belongs, or nil if nothing tells: a process may leave its session and
// clear its environment, and no one needs to have seen it before. What is hardest to shake off is asked first.
func (h *Host) ownerLocked(p ProcInfo) *Tree {
	for t := range h.trees {
		if t.sys.cg.holds(p.Cgroup) {
			return t
		}
	}
	limit := uint64(0)
	for t := range h.trees {
		if t.mark == 0 {
			continue
		}
		if limit == 0 {
			limit = lockLimit(strconv.Itoa(p.Pid))
		}
		if limit == t.mark {
			return t
		}
	}
	for t := range h.trees {
		if t.members[Proc{Pid: p.Pid, Start: p.Start}] {
			return t
		}
	}
	// A session or group keeps its number from being reused as long as it has a member.
	for t := range h.trees {
		if p.Sid == t.pid || p.PGid == t.pid {
			return t
		}
	}
	for t := range h.trees {
		if p.Tag == t.run {
			return t
		}
	}
	return nil
}

// strayLocked reports whether the identified orphan p must go when tree t is emptied (nil: when no tree is).
//
// An orphan that nothing ties to a live tree still came from one of this host's runs, since an orphan only reaches this
// process from below. It goes when no other live run can be its origin: none that started before it, other than runs
// whose leader adopts the orphans of its tree itself: what reaches this process from such a run is left of a dead leader,
// and must go whichever of them it was; and other than runs with a mark, which it would have. Otherwise it is left for the
// last of those runs.
func (h *Host) strayLocked(p ProcInfo, t *Tree) bool {
	if owner := h.ownerLocked(p); owner != nil {
		return owner == t
	}
	if h.excusedLocked(p) {
		return false
	}
	for u := range h.trees {
		if u != t && u.start <= p.Start && !u.subreaper && u.mark == 0 {
			return false
		}
	}
	return true
}

// excusedLocked holds for children of this process that come from no run: those that it had before it had a host, and
// what is in the session of a helper.
func (h *Host) excusedLocked(p ProcInfo) bool {
	return h.sys.inherited[Proc{Pid: p.Pid, Start: p.Start}] || h.started[p.Sid] != nil
}

// noteMembers remembers the leader's descendants while the way to them still exists. Where there is a cgroup it is not
// needed.
func (t *Tree) noteMembers(rep *Report) {
	if t.sys.cg.dir != "" {
		return
	}
	tab, err := walk()
	rep.Walks++
	if err != nil {
		t.host.cfg.Log.Warn().Err(err).Str("run", t.run).Msg("note members of process tree")
		return
	}
	members := make(map[Proc]bool)
	for _, p := range tab.below(map[int]bool{t.pid: true}) {
		members[Proc{Pid: p.Pid, Start: p.Start}] = true
	}
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	if !t.reapedLocked() { // else the walk may have met its pid in another's hand
		t.members = members
	}
}

// strays lists the living orphans that must go when t is emptied, and whether that took a walk. With kill the group of its
// leader is killed if the remains of a member are met: what forks without end may be gone each time that it is looked at.
func (t *Tree) strays(kill bool) (out []ProcInfo, walked bool, err error) {
	h := t.host
	h.mu.Lock()
	defer h.mu.Unlock()
	var dead func(*ProcInfo)
	if c := h.started[t.pid]; kill && (c == nil || c.tree == t) {
		dead = func(p *ProcInfo) {
			// While they are not reaped, no other group can have the number.
			if p.PGid == t.pid && p.Start >= t.start {
				_ = unix.Kill(-t.pid, unix.SIGKILL)
			}
		}
	}
	orphans, walked, err := h.orphansLocked(dead)
	for _, p := range orphans {
		if p = h.identify(p); h.strayLocked(p, t) {
			out = append(out, p)
		}
	}
	return out, walked, err
}

// spared lists by pid what a kill for tree t (nil: for none) must not touch, whatever tag it carries: this process and
// its ancestors, and all that belongs to other live trees and to helpers.
func (h *Host) spared(tab table, t *Tree) map[int]bool {
	h.mu.Lock()
	roots := make(map[int]bool)
	for pid := range h.started {
		if t == nil || pid != t.pid {
			roots[pid] = true
		}
	}
	for pid, p := range tab {
		if p.PPid != os.Getpid() || h.started[pid] != nil {
			continue
		}
		if owner := h.ownerLocked(h.identify(p)); owner != nil && owner != t || owner == nil && h.excusedLocked(p) {
			roots[pid] = true
		}
	}
	h.mu.Unlock()

	out := tab.above(os.Getpid())
	for _, p := range tab.below(roots) {
		out[p.Pid] = true
	}
	return out
}

// tagged lists the living processes with a tag that want accepts and that may be killed for tree t.
func (h *Host) tagged(t *Tree, want func(tag string) bool) ([]ProcInfo, error) {
	return h.choose(t, func(p *ProcInfo) bool {
		p.Tag = readTag(p.Pid, h.cfg.Tag)
		return p.Tag != "" && want(p.Tag)
	})
}

// choose lists the living processes that want accepts and that may be killed for tree t.
func (h *Host) choose(t *Tree, want func(p *ProcInfo) bool) ([]ProcInfo, error) {
	tab, err := walk()
	if err != nil {
		return nil, err
	}
	spared := h.spared(tab, t)
	var out []ProcInfo
	for pid, p := range tab {
		if !spared[pid] && p.alive() && want(&p) && !h.inLiveTree(p, t) {
			out = append(out, p)
		}
	}
	return out, nil
}

// maxClimbs bounds how often inLiveTree starts again because an ancestor died under it.
const maxClimbs = 10

// inLiveTree reports whether p belongs to a live tree other than t, by climbing from it: a walk may have missed a parent
// that died meanwhile, and then its table does not tell.
func (h *Host) inLiveTree(p ProcInfo, t *Tree) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if owner := h.ownerLocked(h.identify(p)); owner != nil {
		return owner != t
	}
	for range maxClimbs {
		pid := p.Pid
		for pid > 1 && pid != os.Getpid() {
			if h.started[pid] != nil && (t == nil || pid != t.pid) {
				return true
			}
			q, err := readStat(pid)
			if err != nil {
				break
			}
			if q.PPid == os.Getpid() && h.started[pid] == nil {
				owner := h.ownerLocked(h.identify(q))
				return owner != nil && owner != t
			}
			pid = q.PPid
		}
		if pid <= 1 || pid == os.Getpid() {
			return false
		}
	}
	return true // it is gone, or will be asked about again in the next round
}
