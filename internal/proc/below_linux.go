package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Kin is that of a live tree.
func (t *Tree) Kin() Kin {
	return Kin{Leader: Proc{Pid: t.pid, Start: t.start, Comm: t.comm}, Cgroup: t.sys.cg.path, Mark: t.mark}
}

// holds says whether a child of the process that has started the tree is of it.
func (k *Kin) holds(p ProcInfo) bool {
	switch {
	case p.Pid == k.Leader.Pid:
		return p.Start == k.Leader.Start
	case k.Cgroup != "":
		return cgroup{path: k.Cgroup}.holds(readCgroup(strconv.Itoa(p.Pid)))
	case k.Mark != 0:
		return lockLimit(strconv.Itoa(p.Pid)) == k.Mark
	}
	return p.Sid == k.Leader.Pid // which it can only be while one of the session lives: so the number is not another's
}

// KillBelow kills what descends from a process that is a child subreaper (a Host), and so all that it started or that an
// orphan of its trees became. It spares this process, and what belongs to one of the trees in spare. It works in rounds
// until one finds nothing, and returns whom it killed. It takes at most DefaultKill; the error then wraps ErrGhost.
//
// It is for a process beside the Host, for when that stands still: nothing of the Host's is asked.
func KillBelow(above Proc, spare []Kin) (killed []Proc, err error) {
	deadline := time.Now().Add(DefaultKill)
	spared := func(tab table) map[int]bool {
		out := tab.above(os.Getpid())
		kin := make(map[int]bool)
		for pid, p := range tab {
			if p.PPid == above.Pid && ofAny(p, spare) {
				kin[pid] = true
			}
		}
		for _, p := range tab.below(kin) {
			out[p.Pid] = true
		}
		return out
	}
	for {
		roots, err := childrenOf(above, spared)
		if err != nil || len(roots) == 0 {
			return killed, err
		}
		x := newHunt(nil, spared)
		k, left := x.kill(roots, deadline)
		killed = append(killed, k...)
		if len(left) == 0 && !time.Now().Before(deadline) {
			left = procs(roots)
		}
		if len(left) > 0 {
			return killed, &GhostError{Run: above.String(), Left: left, Err: x.err}
		}
	}
}

func ofAny(p ProcInfo, trees []Kin) bool {
	for i := range trees {
		if trees[i].holds(p) {
			return true
		}
	}
	return false
}

// childrenOf lists the living children of a process that are not spared. The error is ErrGone if the process has ended.
func childrenOf(above Proc, spared func(table) map[int]bool) (out []ProcInfo, err error) {
	tab, err := walk()
	if err != nil {
		return nil, err
	}
	// If it lives now, its pid was its own during the walk.
	if now, err := Find(above.Pid); err != nil || now.Start != above.Start {
		return nil, errors.Join(fmt.Errorf("look below process %s: %w", above, ErrGone), err)
	}
	not := spared(tab)
	for pid, p := range tab {
		if p.PPid == above.Pid && p.alive() && !not[pid] {
			out = append(out, p)
		}
	}
	return out, nil
}
