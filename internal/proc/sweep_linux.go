package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sweep says what SweepAdopted kills beside orphans that no live run can own.
type Sweep struct {
	// Match chooses among the orphans that are not tied to a live run; nil chooses those that no live run can have left.
	Match func(ProcInfo) bool
	// TagPrefix, if not "", adds every process with a tag that is TagPrefix or lies below it in the sense of a path.
	TagPrefix string
	// Cgroups adds all processes in these cgroup v2 directories and below, and removes the directories.
	Cgroups []string
}

// SweepAdopted kills what a dead process left to this one: the children that it adopted and did not start, with all
// their descendants, and what s adds. Processes of live trees of this host, this process and its ancestors are spared.
// A ctx without deadline gets DefaultKill. It returns ErrGhost if something could not be killed.
func (h *Host) SweepAdopted(ctx context.Context, s Sweep) ([]Proc, error) {
	var cgroups []cgroup
	for _, dir := range s.Cgroups {
		cg, err := h.cgroupAt(dir)
		if err != nil {
			return nil, err
		}
		cgroups = append(cgroups, cg)
	}
	return h.sweep(ctx, s.TagPrefix, cgroups, func() ([]ProcInfo, error) {
		roots, err := h.matching(s.Match)
		if s.TagPrefix == "" || err != nil {
			return roots, err
		}
		tagged, err := h.tagged(nil, func(tag string) bool { return under(tag, s.TagPrefix) })
		return append(roots, tagged...), err
	})
}

// SweepTag kills what an earlier host left: every process whose tag is prefix or lies below it in the sense of a path,
// or that has the mark of this name (MarkDescendants), with all its descendants, and what is in cgroups of the name in
// Config.Cgroup. It spares what SweepAdopted spares. It is meant for the start, when no other process of the same instance
// is alive.
func (h *Host) SweepTag(ctx context.Context, prefix string) ([]Proc, error) {
	if prefix == "" {
		return nil, errors.New("sweep processes by tag: the prefix is empty, which would mean every instance")
	}
	dirs := h.leftoverDirs(nil)
	killed, err := h.sweep(ctx, prefix, h.leftoverCgroups(), func() ([]ProcInfo, error) {
		roots, err := h.choose(nil, func(p *ProcInfo) bool {
			if limit := lockLimit(strconv.Itoa(p.Pid)); limit < h.sys.lockLimit && markedBy(limit, prefix) {
				return true
			}
			p.Tag = readTag(p.Pid, h.cfg.Tag)
			return p.Tag != "" && under(p.Tag, prefix)
		})
		return append(roots, leftoverMembers(dirs)...), err
	})
	if err == nil {
		h.removeLeftovers(dirs)
	}
	return killed, err
}

// SweepRuns kills what a dead process left of these runs, while other processes of the same instance live: every process
// whose tag is that of one of the runs or lies below it, with all its descendants, and what is in the runs' cgroups,
// which are removed. It spares what SweepAdopted spares.
func (h *Host) SweepRuns(ctx context.Context, runs []string) ([]Proc, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	if slices.Contains(runs, "") {
		return nil, errors.New("sweep processes of runs: a run has no name, which would mean every run")
	}
	var cgroups []cgroup
	for _, base := range h.leftoverCgroups() {
		for _, run := range runs {
			cgroups = append(cgroups, base.child(runCgroupName(run)))
		}
	}
	dirs := h.leftoverDirs(runs)
	killed, err := h.sweep(ctx, strings.Join(runs, ", "), cgroups, func() ([]ProcInfo, error) {
		roots, err := h.tagged(nil, func(tag string) bool {
			return slices.ContainsFunc(runs, func(run string) bool { return under(tag, run) })
		})
		return append(roots, leftoverMembers(dirs)...), err
	})
	if err == nil {
		h.removeLeftovers(dirs)
	}
	return killed, err
}

// sweep kills in rounds until one finds nothing.
func (h *Host) sweep(ctx context.Context, name string, cgroups []cgroup, roots func() ([]ProcInfo, error)) (killed []Proc, err error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(DefaultKill)
	}
	for {
		if ctx.Err() != nil {
			return killed, fmt.Errorf("sweep processes of %q: %w", name, context.Cause(ctx))
		}
		for _, cg := range cgroups {
			k, err := h.sweepCgroup(cg, deadline)
			killed = append(killed, k...)
			if err != nil {
				return killed, err
			}
		}
		rs, err := roots()
		if err != nil || len(rs) == 0 {
			return killed, err
		}
		expired := !time.Now().Before(deadline)
		k, left, _, err := h.kill(nil, rs, deadline)
		killed = append(killed, k...)
		if expired && len(left) == 0 {
			left = procs(rs)
		}
		if len(left) > 0 {
			return killed, &GhostError{Run: name, Left: left, Err: errors.Join(err, context.Cause(ctx))}
		}
	}
}

func procs(infos []ProcInfo) []Proc {
	out := make([]Proc, len(infos))
	for i, p := range infos {
		out[i] = p.Proc
	}
	return out
}

func (h *Host) matching(match func(ProcInfo) bool) ([]ProcInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	orphans, _, err := h.orphansLocked(nil)
	var out []ProcInfo
	for _, p := range orphans {
		p = h.identify(p)
		if match == nil && h.strayLocked(p, nil) ||
			match != nil && h.ownerLocked(p) == nil && !h.excusedLocked(p) && match(p) {
			out = append(out, p)
		}
	}
	return out, err
}

// sweepCgroup kills and removes one cgroup, but goes around those of live trees, and leaves alone one that this process
// is in.
func (h *Host) sweepCgroup(cg cgroup, deadline time.Time) (killed []Proc, err error) {
	if cg.holds(h.sys.own.path) {
		return nil, nil
	}
	inLive, holdsLive := h.liveCgroup(cg)
	if inLive {
		return nil, nil
	}
	if holdsLive || cg == h.sys.base {
		entries, err := os.ReadDir(cg.dir)
		if err != nil {
			return nil, fmt.Errorf("sweep cgroup: %w", err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			k, err := h.sweepCgroup(cg.child(e.Name()), deadline)
			killed = append(killed, k...)
			if err != nil {
				return killed, err
			}
		}
		return killed, nil
	}
	populated, err := cg.populated()
	if err == nil && populated {
		killed, err = cg.kill(deadline)
	}
	if err != nil {
		return killed, &GhostError{Run: cg.path, Left: procs(cg.procs()), Err: err}
	}
	if err := cg.remove(); err != nil {
		h.cfg.Log.Warn().Err(err).Msg("an empty cgroup was not removed")
	}
	return killed, nil
}

// liveCgroup reports whether cg is in the cgroup of a live tree, and whether it holds one.
func (h *Host) liveCgroup(cg cgroup) (in, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range h.trees {
		in = in || t.sys.cg.holds(cg.path)
		holds = holds || cg.holds(t.sys.cg.path)
	}
	return in, holds
}

// leftoverCgroups finds all cgroups of the name that this host uses: an earlier host may have stood elsewhere in the
// hierarchy, for example in another login session.
func (h *Host) leftoverCgroups() []cgroup {
	if h.cfg.Cgroup == "" || h.sys.mount.dir == "" {
		return nil
	}
	var out []cgroup
	walkDirs(h.sys.mount.dir, func(dir string) {
		if filepath.Base(dir) != h.cfg.Cgroup {
			return // what cannot be read holds no process that we could kill
		}
		if cg, err := h.cgroupAt(dir); err == nil {
			out = append(out, cg)
		}
	})
	return out
}

// cgroupAt gives the cgroup that is mounted at dir.
func (h *Host) cgroupAt(dir string) (cgroup, error) {
	mount := h.sys.mount
	if mount.dir == "" {
		return cgroup{}, fmt.Errorf("sweep cgroup %s: no cgroup v2 was found at start", dir)
	}
	rel, err := filepath.Rel(mount.dir, dir)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return cgroup{}, fmt.Errorf("sweep cgroup %s: it is not below %s", dir, mount.dir)
	}
	return mount.child(rel), nil
}
