package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// system is the part of a Host that only Linux has.
type system struct {
	mount       cgroup // the top of the mounted cgroup v2 hierarchy; zero if there is none
	own         cgroup // where this process is in it
	base        cgroup // holds this host's trees; zero if none is used
	noClone     bool   // starting a child in a cgroup failed once; guarded by mu
	wasReaper   bool
	inherited   map[Proc]bool // children that this process had before it had a host: reaped, never killed. Comm is ""
	marks       uint64        // number of the last NewMark
	lockLimit   uint64        // of this process at its start: others of its user can lower it (prlimit(2))
	noChildFile bool          // the kernel has no children files; guarded by mu

	moved         bool        // this process moved into a leaf of the cgroup that it was in
	unified       []string    // the controllers that cgroups below base have
	v1            []hierarchy // of the controllers that are mounted as v1
	legacy        []hierarchy // those of v1 in which trees are limited
	unlimited     error       // why v1 cannot be used
	noControllers error       // why v2 cannot be used
	total         Limits      // of all trees together; guarded by mu
}

// systemTree is the part of a Tree that only Linux has.
type systemTree struct {
	cg      cgroup // zero if the tree has none
	removed bool   // cg is; guarded by the tree's stopping

	legacy    []limited // its cgroups of v1; guarded by mu like what follows
	unlimited error     // what met the attempt to limit it
	exceeded  *Exceeded
	released  bool // its cgroups of v1 are removed
}

func sysProcAttr(s *Spec) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: s.NewSession, Setpgid: !s.NewSession, Setctty: s.Terminal, Pdeathsig: s.PdeathSignal}
}

func (h *Host) open() error {
	var was int32
	if _, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&was)), 0); errno != 0 {
		return fmt.Errorf("ask whether this process is a child subreaper: %w", errno)
	}
	h.sys.wasReaper = was != 0
	h.sys.lockLimit = lockLimit("self")
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a child subreaper: %w", err)
	}
	h.sys.inherited = make(map[Proc]bool)
	h.mu.Lock()
	orphans, _, err := h.orphansLocked(nil)
	h.mu.Unlock()
	if err != nil {
		return err
	}
	for _, p := range orphans {
		h.sys.inherited[Proc{Pid: p.Pid, Start: p.Start}] = true
	}
	if err := h.openCgroup(); err != nil {
		h.cfg.Log.Info().Err(err).Msg("runs get no cgroup; their processes are found by ancestry, tag and mark")
	}
	h.openControllers()
	return nil
}

func (h *Host) openCgroup() error {
	mount, own, err := findCgroups()
	if err != nil {
		return err
	}
	h.sys.mount, h.sys.own = mount, own
	if h.cfg.Cgroup == "" {
		return nil
	}
	if h.cfg.Cgroup != filepath.Base(h.cfg.Cgroup) {
		return fmt.Errorf("use cgroup %q: the name must have no slash", h.cfg.Cgroup)
	}
	parent, stand, err := place(mount, own, controllers)
	h.sys.own, h.sys.moved, h.sys.noControllers = stand, stand != own, err
	base := parent.child(h.cfg.Cgroup)
	if err := os.Mkdir(base.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	h.sys.base = base
	if err == nil {
		have := words(base.dir, "cgroup.controllers")
		_, h.sys.noControllers = base.give(slices.DeleteFunc(slices.Clone(controllers), func(name string) bool { return !slices.Contains(have, name) }), false)
	}
	return nil
}

func (h *Host) cgroup() string { return h.sys.base.dir }

// close undoes open.
func (h *Host) close() error {
	var err error
	if h.sys.base.dir != "" {
		// Not what is below it: where this process and another of the instance stand in the same cgroup, they share the
		// base, and an empty cgroup may be that of a run which the other is about to start.
		if e := unix.Rmdir(h.sys.base.dir); e != nil && !errors.Is(e, unix.ENOENT) && !errors.Is(e, unix.ENOTEMPTY) && !errors.Is(e, unix.EBUSY) {
			err = fmt.Errorf("remove cgroup %s: %w", h.sys.base.dir, e)
		}
	}
	for _, v := range h.sys.legacy {
		_ = unix.Rmdir(v.base) // as above: another may be using it
	}
	h.leaveLeaf()
	if !h.sys.wasReaper {
		if e := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); e != nil {
			err = errors.Join(err, fmt.Errorf("stop being a child subreaper: %w", e))
		}
	}
	return err
}

// fork starts the leader, in a cgroup of its own where that can be had. It is called on the spawner, under mu.
func (h *Host) fork(t *Tree, path string, argv []string, attr *os.ProcAttr) error {
	back := h.confine(t)
	p, err := h.forkIntoCgroup(t, path, argv, attr)
	if p == nil && err == nil {
		p, err = os.StartProcess(path, argv, attr)
	}
	back()
	if err != nil {
		t.releaseLocked()
		return err
	}
	t.proc, t.pid = p, p.Pid
	// It cannot be reaped before mu is free, so the stat is its own even if it has exited already.
	st, err := readStat(t.pid)
	if err != nil {
		err = fmt.Errorf("read its start time: %w", err)
		_ = p.Kill()
		_, werr := p.Wait()
		return errors.Join(err, werr)
	}
	t.start = st.Start
	if t.limits != nil {
		if err := t.dieFirst(); err != nil && st.alive() {
			h.cfg.Log.Debug().Err(err).Str("run", t.run).Msg("when memory runs out, a core may be ended before its run")
		}
	}
	return nil
}

// openPipe makes a pipe between this process and a child. It is as os.Pipe, but for the child's end: the poller never
// hears of that, and it blocks, as a program expects it.
func openPipe(parentReads bool) (parent, child *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	ours, theirs := fds[0], fds[1]
	if !parentReads {
		ours, theirs = theirs, ours
	}
	if _, err := unix.FcntlInt(uintptr(ours), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		return nil, nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(ours), unix.Close(theirs))
	}
	return os.NewFile(uintptr(ours), "pipe"), os.NewFile(uintptr(theirs), "pipe"), nil
}

// forkIntoCgroup returns neither process nor error where no cgroup is available.
//
// clone3 into a cgroup fails for reasons that only a try can tell (no permission at the common ancestor, a threaded
// cgroup, a seccomp filter), with numbers that exec uses as well. So a failure is tried again without: if that works,
// the cgroup was to blame and is not tried again.
func (h *Host) forkIntoCgroup(t *Tree, path string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	if h.sys.base.dir == "" || h.sys.noClone {
		return nil, nil
	}
	cg := h.sys.base.child(runCgroupName(t.run))
	dir, err := h.makeCgroup(cg)
	if err != nil {
		h.cfg.Log.Warn().Err(err).Str("run", t.run).Msg("run gets no cgroup")
		return nil, nil
	}
	defer unix.Close(dir)
	h.limitOwn(t, cg)

	attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, dir
	p, err := os.StartProcess(path, argv, attr)
	if err == nil {
		t.sys.cg = cg
		return p, nil
	}
	attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = false, 0
	_ = cg.remove()
	p, plain := os.StartProcess(path, argv, attr)
	if plain != nil {
		return nil, plain
	}
	h.sys.noClone = true
	h.cfg.Log.Warn().Err(err).Str("cgroup", cg.dir).Msg("no process can be started in a cgroup; runs go on without one")
	return p, nil
}

// makeCgroup makes a directory without processes; one that exists is a leftover that must be empty. It is called under
// mu.
func (h *Host) makeCgroup(cg cgroup) (dir int, err error) {
	for t := range h.trees {
		if t.sys.cg == cg { // "a/b_c" and "a_b/c" are written alike
			return 0, fmt.Errorf("make cgroup %s: it is that of live run %q", cg.dir, t.run)
		}
	}
	err = os.Mkdir(cg.dir, 0o755)
	if errors.Is(err, os.ErrNotExist) { // another host that shares the base has closed and removed it
		err = os.MkdirAll(cg.dir, 0o755)
	}
	if errors.Is(err, os.ErrExist) {
		if pop, perr := cg.populated(); pop || perr != nil {
			return 0, fmt.Errorf("make cgroup %s: left over and not empty: %w", cg.dir, errors.Join(err, perr))
		}
		err = nil
	}
	if err != nil {
		return 0, fmt.Errorf("make cgroup: %w", err)
	}
	return retry(func() (int, error) { return unix.Open(cg.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
}

// Cgroup is the directory of the tree's cgroup, or "".
func (t *Tree) Cgroup() string { return t.sys.cg.dir }
