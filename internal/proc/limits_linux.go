package proc

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits are enforced by cgroups: by those of the tree's own cgroup v2 where the controllers are there, else by one cgroup
// v1 for each controller. Below one parent of the host's name lie those of all trees, so that they can be bounded together.
//
// containerd/cgroups is not used: it moves a process that runs already, which may have forked by then, and it neither
// looks for a place that was delegated nor moves this process out of the way.

// hierarchy is a cgroup v1 hierarchy with one of the controllers.
type hierarchy struct {
	controller string
	mount      string // where it is mounted
	own        string // the directory of the cgroup that this process is in
	base       string // the directory that holds those of the trees
}

// runDir is the directory of a tree.
func (v hierarchy) runDir(run string) string { return filepath.Join(v.base, runCgroupName(run)) }

// findHierarchies finds where the v1 controllers are mounted and where this process stands in them.
func findHierarchies(name string) []hierarchy {
	mounts, err := readFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	member, err := readFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var all []hierarchy
	for _, controller := range controllers {
		mount, root, ok := cgroup1Mount(string(mounts), controller)
		path, in := cgroup1Path(string(member), controller)
		if !ok || !in {
			continue
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || strings.HasPrefix(rel, "..") {
			continue
		}
		own := filepath.Join(mount, rel)
		all = append(all, hierarchy{controller: controller, mount: mount, own: own, base: filepath.Join(own, name)})
	}
	return all
}

// cgroup1Mount finds the v1 hierarchy with the controller in the text of proc_pid_mountinfo(5), whose last field has the
// controllers.
func cgroup1Mount(mountinfo, controller string) (mount, root string, ok bool) {
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if found && len(f) >= 5 && len(g) >= 3 && g[0] == "cgroup" && slices.Contains(strings.Split(g[2], ","), controller) {
			return unescapeMount(f[4]), unescapeMount(f[3]), true
		}
	}
	return "", "", false
}

// cgroup1Path finds the path in a line of cgroups(7), "4:memory:/user.slice".
func cgroup1Path(text, controller string) (string, bool) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], true
		}
	}
	return "", false
}

// openControllers finds what can enforce limits.
func (h *Host) openControllers() {
	if h.cfg.Cgroup == "" {
		return
	}
	if h.sys.base.dir != "" {
		h.sys.unified = slices.DeleteFunc(words(h.sys.base.dir, "cgroup.subtree_control"), func(name string) bool { return !slices.Contains(controllers, name) })
	}
	for _, v := range findHierarchies(h.cfg.Cgroup) {
		h.sys.v1 = append(h.sys.v1, v)
		if slices.Contains(h.sys.unified, v.controller) {
			continue
		}
		if err := mkdir(v.base); err != nil {
			h.sys.unlimited = errors.Join(h.sys.unlimited, err)
			continue
		}
		h.sys.legacy = append(h.sys.legacy, v)
	}
}

// HostLimits returns what this process and all that it starts can use of the host: what the host has, or less if this
// process is in a cgroup that is limited. 0 is unknown.
func HostLimits() Limits {
	var l Limits
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		l.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	lower := func(limit *int64, dir, file string) {
		if n := number(dir, file); n > 0 && (*limit == 0 || n < *limit) {
			*limit = n
		}
	}
	lower(&l.Processes, "/proc/sys/kernel", "pid_max")
	lower(&l.Processes, "/proc/sys/kernel", "threads-max")
	if mount, own, err := findCgroups(); err == nil {
		for c := own; ; c = c.up() {
			lower(&l.Memory, c.dir, "memory.max")
			lower(&l.Processes, c.dir, "pids.max")
			if c == mount || c.path == "/" {
				break
			}
		}
	}
	for _, v := range findHierarchies("") {
		for dir := v.own; strings.HasPrefix(dir, v.mount); dir = filepath.Dir(dir) {
			switch v.controller {
			case MemoryController:
				lower(&l.Memory, dir, "memory.limit_in_bytes")
			case ProcessesController:
				lower(&l.Processes, dir, "pids.max")
			}
		}
	}
	return l
}

// words reads a file of a cgroup that holds words.
func words(dir, file string) []string {
	b, _ := readFile(filepath.Join(dir, file))
	return strings.Fields(string(b))
}

// mkdir makes a directory that may be there.
func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return nil
}

var errNoCgroups = errors.New("there are no cgroups, or none are to be used")

// Enforces lists the controllers that this host can enforce limits with, and why the others cannot be had.
func (h *Host) Enforces() (names []string, why error) {
	names = slices.Clone(h.sys.unified)
	for _, v := range h.sys.legacy {
		names = append(names, v.controller)
	}
	for _, name := range controllers {
		if !slices.Contains(names, name) {
			return names, fmt.Errorf("no cgroup with the controllers %s can be made here: %w", strings.Join(controllers, ", "),
				cmp.Or(errors.Join(h.sys.unlimited, h.sys.noControllers), errNoCgroups))
		}
	}
	return names, nil
}

// LimitAll bounds all trees that are started with Limits, together. It may be called again.
func (h *Host) LimitAll(total Limits) error {
	h.mu.Lock()
	h.sys.total = total
	h.mu.Unlock()
	var errs []error
	if dir := h.sys.base.dir; dir != "" {
		for _, name := range h.sys.unified {
			errs = append(errs, limitUnified(dir, name, total))
		}
	}
	for _, v := range h.sys.legacy {
		errs = append(errs, mkdir(v.base), limitLegacy(v.base, v.controller, total))
	}
	return errors.Join(errs...)
}

// limitUnified sets or lifts the limit of one controller of a cgroup v2.
func limitUnified(dir, controller string, l Limits) error {
	value := "max"
	switch controller {
	case MemoryController:
		swap := "max"
		if l.Memory > 0 {
			// What is swapped out counts in v1 only: here a limited tree is not swapped.
			value, swap = strconv.FormatInt(l.Memory, 10), "0"
		}
		if err := writeFile(filepath.Join(dir, "memory.swap.max"), swap); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return writeFile(filepath.Join(dir, "memory.max"), value)
	case ProcessesController:
		if l.Processes > 0 {
			value = strconv.FormatInt(l.Processes, 10)
		}
		return writeFile(filepath.Join(dir, "pids.max"), value)
	default:
		if l.CPU > 0 {
			value = strconv.FormatInt(quota(l.CPU), 10)
		}
		return writeFile(filepath.Join(dir, "cpu.max"), fmt.Sprintf("%s %d", value, cpuPeriod))
	}
}

// cpuPeriod is over which a quota of CPU time holds, in microseconds.
const cpuPeriod = 100_000

// quota returns the CPU time in each period. The kernel wants 1 ms at least.
func quota(cpus float64) int64 { return max(int64(cpus*cpuPeriod), 1000) }

// limitLegacy is as limitUnified, for a cgroup v1.
func limitLegacy(dir, controller string, l Limits) error {
	value := "-1"
	switch controller {
	case MemoryController:
		swap := filepath.Join(dir, "memory.memsw.limit_in_bytes")
		if l.Memory > 0 {
			value = strconv.FormatInt(l.Memory, 10)
		}
		err := writeFile(filepath.Join(dir, "memory.limit_in_bytes"), value)
		// The limit with swap may never lie below the one without: it is lifted first.
		if errors.Is(err, unix.EINVAL) && writeFile(swap, "-1") == nil {
			err = writeFile(filepath.Join(dir, "memory.limit_in_bytes"), value)
		}
		if err != nil {
			return err
		}
		if err := writeFile(swap, value); !errors.Is(err, os.ErrNotExist) { // the kernel may not account swap
			return err
		}
		return nil
	case ProcessesController:
		value = "max"
		if l.Processes > 0 {
			value = strconv.FormatInt(l.Processes, 10)
		}
		return writeFile(filepath.Join(dir, "pids.max"), value)
	default:
		if l.CPU > 0 {
			value = strconv.FormatInt(quota(l.CPU), 10)
		}
		return errors.Join(writeFile(filepath.Join(dir, "cpu.cfs_period_us"), strconv.Itoa(cpuPeriod)), writeFile(filepath.Join(dir, "cpu.cfs_quota_us"), value))
	}
}

// confine is called on the spawner, under mu, before the leader is forked: it sets the limits of the tree's cgroup v2,
// makes those of v1 and moves this thread into them, since a child begins where the thread stands that forks it. The
// returned function moves the thread back. What could not be limited is in t.sys.unlimited.
func (h *Host) confine(t *Tree) (back func()) {
	if t.limits == nil {
		return func() {}
	}
	var joined []hierarchy
	for _, v := range h.sys.legacy {
		_, one := t.limits.of(v.controller)
		if _, all := h.sys.total.of(v.controller); !one && !all {
			continue
		}
		if err := h.join(v, t); err != nil {
			t.sys.unlimited = errors.Join(t.sys.unlimited, err)
			continue
		}
		joined = append(joined, v)
	}
	return func() {
		for _, v := range joined {
			if err := writeFile(filepath.Join(v.own, "tasks"), thisThread); err != nil {
				h.cfg.Log.Error().Err(err).Str("run", t.run).Msg("the thread that starts runs stays in a run's cgroup")
			}
		}
	}
}

// thisThread, written to a cgroup's tasks, moves the thread that writes. By its number the
// kernel takes a lock against every fork and exit of the machine, which waits for an RCU
// grace period (cgroup_procs_write_start): some 10 ms where nobody had it lately.
const thisThread = "0"

func (h *Host) join(v hierarchy, t *Tree) error {
	dir := v.runDir(t.run)
	if err := mkdir(dir); errors.Is(err, os.ErrNotExist) { // another host that shares the base has closed and removed it
		if err = errors.Join(mkdir(v.base), limitLegacy(v.base, v.controller, h.sys.total)); err == nil {
			err = mkdir(dir)
		}
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	err := limitLegacy(dir, v.controller, *t.limits)
	if err == nil {
		err = writeFile(filepath.Join(dir, "tasks"), thisThread)
	}
	if err != nil {
		_ = unix.Rmdir(dir)
		return fmt.Errorf("limit %s: %w", v.controller, err)
	}
	t.sys.legacy = append(t.sys.legacy, limited{v.controller, dir})
	return nil
}

// limited is a tree's cgroup v1 and its controller.
type limited struct{ controller, dir string }

// limitOwn sets the limits of the tree's cgroup v2, which has no process yet.
func (h *Host) limitOwn(t *Tree, cg cgroup) {
	if t.limits == nil {
		return
	}
	for _, name := range h.sys.unified {
		err := limitUnified(cg.dir, name, *t.limits)
		if name == MemoryController {
			// The kernel then ends all of it at once, not whichever process was the largest.
			_ = writeFile(filepath.Join(cg.dir, "memory.oom.group"), "1")
		}
		if err != nil {
			t.sys.unlimited = errors.Join(t.sys.unlimited, fmt.Errorf("limit %s: %w", name, err))
		}
	}
}

// Unlimited says why one of the limits, with which the tree was started, is not enforced, or nil.
func (t *Tree) Unlimited(limits Limits) error {
	for _, name := range limits.Needs() {
		if t.controllerDir(name) == "" {
			_, why := t.host.Enforces()
			return errors.Join(t.sys.unlimited, why)
		}
	}
	return nil
}

// controllerDir is the tree's directory with a controller, or "".
func (t *Tree) controllerDir(controller string) string {
	for _, v := range t.sys.legacy {
		if v.controller == controller {
			return v.dir
		}
	}
	if t.sys.cg.dir != "" && slices.Contains(t.host.sys.unified, controller) {
		return t.sys.cg.dir
	}
	return ""
}

// Exceeded reports a limit that the tree has met, or nil. The answer stays after the tree's end.
func (t *Tree) Exceeded() *Exceeded {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	t.readExceeded()
	return t.sys.exceeded
}

// readExceeded reads the kernel's counters. It is called under mu.
func (t *Tree) readExceeded() {
	if t.limits == nil || t.sys.exceeded != nil || t.sys.released {
		return
	}
	if dir := t.controllerDir(MemoryController); dir != "" {
		file := "memory.oom_control"
		if dir == t.sys.cg.dir {
			file = "memory.events"
		}
		if counter(dir, file, "oom_kill") > 0 {
			// v1 has no counter of its own for this (its failcnt is 0 on recent kernels), but its usage went up to the limit.
			peak := max(number(dir, "memory.max_usage_in_bytes"), number(dir, "memory.memsw.max_usage_in_bytes"))
			own := counter(dir, "memory.events", "oom") > 0 || peak >= t.limits.Memory-t.limits.Memory/64
			t.sys.exceeded = &Exceeded{Controller: MemoryController, Limit: t.limits.Memory, Own: own && t.limits.Memory > 0, Total: t.host.sys.total.Memory}
			return
		}
	}
	if dir := t.controllerDir(ProcessesController); dir != "" && counter(dir, "pids.events", "max") > 0 {
		peak := number(dir, "pids.peak") // 0: kernels before 6.11 have none
		t.sys.exceeded = &Exceeded{Controller: ProcessesController, Limit: t.limits.Processes, Total: t.host.sys.total.Processes,
			Own: t.limits.Processes > 0 && (peak == 0 || peak >= t.limits.Processes)}
	}
}

// counter reads one line "NAME NUMBER" of a file; 0 if it is not there.
func counter(dir, file, name string) int64 {
	f := words(dir, file)
	for i := 0; i+1 < len(f); i += 2 {
		if f[i] == name {
			n, _ := strconv.ParseInt(f[i+1], 10, 64)
			return n
		}
	}
	return 0
}

func number(dir, file string) int64 {
	f := words(dir, file)
	if len(f) != 1 {
		return 0
	}
	n, _ := strconv.ParseInt(f[0], 10, 64)
	return n
}

// release removes the tree's cgroups of v1, once it is empty. It is called with the tree's stopping held.
func (t *Tree) release() {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	t.releaseLocked()
}

func (t *Tree) releaseLocked() {
	if t.sys.released {
		return
	}
	if !t.sys.removed || len(t.sys.legacy) > 0 {
		t.readExceeded()
	}
	t.sys.released = true
	for _, v := range t.sys.legacy {
		if err := (cgroup{dir: v.dir}).remove(); err != nil {
			t.host.cfg.Log.Warn().Err(err).Str("run", t.run).Msg("an empty cgroup was not removed")
		}
	}
}

// leftoverDirs finds the v1 directories that earlier hosts of this name have left, with wanted runs or, without any, of
// all runs. Those of live trees are not among them.
func (h *Host) leftoverDirs(runs []string) []string {
	h.mu.Lock()
	live := make(map[string]bool)
	for t := range h.trees {
		for _, v := range t.sys.legacy {
			live[v.dir] = true
		}
	}
	h.mu.Unlock()
	var all []string
	for _, v := range h.sys.v1 {
		for _, base := range (cgroup{dir: v.mount}).dirs() {
			if filepath.Base(base) != h.cfg.Cgroup {
				continue
			}
			entries, _ := os.ReadDir(base)
			for _, e := range entries {
				wanted := len(runs) == 0 || slices.ContainsFunc(runs, func(run string) bool { return e.Name() == runCgroupName(run) })
				if dir := filepath.Join(base, e.Name()); e.IsDir() && wanted && !live[dir] {
					all = append(all, dir)
				}
			}
		}
	}
	return all
}

// leftoverMembers lists the living processes in cgroups v1 that a dead host left, and may be killed.
func leftoverMembers(dirs []string) []ProcInfo {
	var all []ProcInfo
	for _, dir := range dirs {
		for _, p := range (cgroup{dir: dir}).procs() {
			if p.alive() && p.Pid != os.Getpid() {
				all = append(all, p)
			}
		}
	}
	return all
}

// removeLeftovers removes empty cgroups v1 that a dead host left, and their parents when nothing is in them.
func (h *Host) removeLeftovers(dirs []string) {
	bases := make(map[string]bool)
	for _, dir := range dirs {
		if err := (cgroup{dir: dir}).remove(); err != nil {
			h.cfg.Log.Warn().Err(err).Msg("an empty cgroup was not removed")
		}
		bases[filepath.Dir(dir)] = true
	}
	for base := range bases {
		if !slices.ContainsFunc(h.sys.legacy, func(v hierarchy) bool { return v.base == base }) {
			_ = unix.Rmdir(base)
		}
	}
}

// leafName is the cgroup v2 into which this process moves so that the one that it was in can give its controllers on: a
// cgroup with processes of its own cannot (cgroups(7), "no internal processes").
const leafName = "agentsched-self"

// place finds the cgroup v2 below which the base shall be made: the nearest that can give the wanted controllers to what
// is below it. That is our own where no other process is in it (a service, a scope, the cgroup of a core), else one above that
// was delegated to us. Without any it is our own, and err says why.
func place(mount, own cgroup, want []string) (parent, stand cgroup, err error) {
	at := own
	if filepath.Base(at.path) == leafName && at != mount {
		at = at.up()
	}
	for c := at; ; c = c.up() {
		have := words(c.dir, "cgroup.controllers")
		have = slices.DeleteFunc(slices.Clone(want), func(name string) bool { return !slices.Contains(have, name) })
		if len(have) > 0 {
			moved, e := c.give(have, c == at)
			if e == nil && unix.Access(c.dir, unix.W_OK) == nil {
				if moved {
					own = c.child(leafName)
				}
				return c, own, nil
			}
			if e == nil {
				e = unix.EACCES
			}
			err = errors.Join(err, fmt.Errorf("enable the controllers %s below cgroup %s: %w", strings.Join(have, ", "), c.path, e))
		}
		if c == mount || c.path == "/" {
			return at, own, err
		}
	}
}

func (c cgroup) up() cgroup { return cgroup{dir: filepath.Dir(c.dir), path: filepath.Dir(c.path)} }

// give makes the controllers available below c. Where nothing but this process is in the way and it may, it moves into a
// leaf; moved then says so.
func (c cgroup) give(names []string, mayMove bool) (moved bool, err error) {
	on := words(c.dir, "cgroup.subtree_control")
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(on, name) })
	if len(names) == 0 {
		return false, nil
	}
	control, text := filepath.Join(c.dir, "cgroup.subtree_control"), "+"+strings.Join(names, " +")
	if err = writeFile(control, text); !errors.Is(err, unix.EBUSY) || !mayMove {
		return false, err
	}
	self := strconv.Itoa(os.Getpid())
	if slices.ContainsFunc(words(c.dir, "cgroup.procs"), func(pid string) bool { return pid != self }) {
		return false, fmt.Errorf("other processes are in it: %w", err)
	}
	leaf := c.child(leafName)
	if err = mkdir(leaf.dir); err != nil {
		return false, err
	}
	if err = writeFile(filepath.Join(leaf.dir, "cgroup.procs"), self); err == nil {
		if err = writeFile(control, text); err == nil {
			return true, nil
		}
		_ = writeFile(filepath.Join(c.dir, "cgroup.procs"), self)
	}
	_ = leaf.removeOne()
	return false, err
}

// leaveLeaf undoes what give did for this process, as far as that can be done: others may have come.
func (h *Host) leaveLeaf() {
	c := h.sys.own
	if !h.sys.moved {
		return
	}
	parent := c.up()
	if on := words(parent.dir, "cgroup.subtree_control"); len(on) > 0 {
		_ = writeFile(filepath.Join(parent.dir, "cgroup.subtree_control"), "-"+strings.Join(on, " -"))
	}
	if writeFile(filepath.Join(parent.dir, "cgroup.procs"), strconv.Itoa(os.Getpid())) == nil {
		_ = c.removeOne()
	}
}
