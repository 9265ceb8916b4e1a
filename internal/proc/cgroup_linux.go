package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is a cgroup v2 directory. Its verbs reach the cgroups below it too.
type cgroup struct {
	dir  string // where it is mounted
	path string // as /proc/PID/cgroup names it, from our cgroup namespace's root
}

// findCgroups finds the top of the mounted cgroup v2 hierarchy and where this process stands in it, be it mounted alone
// (unified) or beside v1 hierarchies (hybrid, then usually at /sys/fs/cgroup/unified).
func findCgroups() (mount, own cgroup, err error) {
	mounts, err := readFile("/proc/self/mountinfo")
	if err != nil {
		return cgroup{}, cgroup{}, fmt.Errorf("find cgroup v2: %w", err)
	}
	dir, root, ok := cgroup2Mount(string(mounts))
	if !ok {
		return cgroup{}, cgroup{}, errors.New("find cgroup v2: not mounted")
	}
	path := readCgroup("self")
	rel, err := filepath.Rel(root, path)
	if path == "" || err != nil || strings.HasPrefix(rel, "..") {
		return cgroup{}, cgroup{}, fmt.Errorf("find cgroup v2: own path %q is outside of the mounted %q", path, root)
	}
	mount = cgroup{dir: dir, path: root}
	return mount, mount.child(rel), nil
}

// cgroup2Mount reads proc_pid_mountinfo(5): "36 35 98:0 ROOT MOUNT options [tags] - TYPE source options".
func cgroup2Mount(mountinfo string) (mount, root string, ok bool) {
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if found && strings.HasPrefix(after, "cgroup2 ") && len(f) >= 5 {
			return unescapeMount(f[4]), unescapeMount(f[3]), true
		}
	}
	return "", "", false
}

// unescapeMount undoes the octal escapes that mountinfo uses for space, tab, newline and backslash.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func (c cgroup) child(name string) cgroup {
	return cgroup{dir: filepath.Join(c.dir, name), path: filepath.Join(c.path, name)}
}

// runCgroupName is the directory's name for a run. Slashes cannot stand in it; the run's name is not read back from it.
func runCgroupName(run string) string {
	name := strings.ReplaceAll(run, "/", "_")
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "cgroup.") {
		name = "_" + name
	}
	return name
}

// holds reports whether a process with this cgroup path is in c or below.
func (c cgroup) holds(path string) bool { return c.path != "" && under(path, c.path) }

// populated reads cgroup.events: whether a living process is in c or below. A cgroup that is gone has none.
func (c cgroup) populated() (bool, error) {
	var buf [256]byte
	n, err := readInto(filepath.Join(c.dir, "cgroup.events"), buf[:])
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read whether cgroup %s is populated: %w", c.dir, err)
	}
	return isPopulated(string(buf[:n])), nil
}

func isPopulated(events string) bool {
	return slices.Contains(strings.Split(events, "\n"), "populated 1")
}

// waitEmpty waits until no living process is in c, or the deadline has passed.
func (c cgroup) waitEmpty(deadline time.Time) error {
	f, err := os.Open(filepath.Join(c.dir, "cgroup.events"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch cgroup %s: %w", c.dir, err)
	}
	defer f.Close()
	for {
		var buf [256]byte
		n, err := f.ReadAt(buf[:], 0)
		if n == 0 && errors.Is(err, unix.ENODEV) || !isPopulated(string(buf[:n])) {
			return nil
		}
		// The kernel raises POLLPRI when the file's content has changed since it was last read (cgroups(7)).
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
		if n, err := poll(fds, deadline); n == 0 || err != nil {
			return fmt.Errorf("wait until cgroup %s is empty: %w", c.dir, errors.Join(err, os.ErrDeadlineExceeded))
		}
	}
}

// procs lists the processes in c and below, as far as they can be read. Zombies are among them.
func (c cgroup) procs() []ProcInfo {
	var out []ProcInfo
	for _, dir := range c.dirs() {
		b, err := readFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil || pid == 0 { // 0: outside of our pid namespace
				continue
			}
			if p, err := readStat(pid); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
}

// dirs lists c and the cgroups below it, parents first.
func (c cgroup) dirs() []string {
	var out []string
	walkDirs(c.dir, func(dir string) { out = append(out, dir) })
	return out
}

// walkDirs tells of a cgroup and of all below it, each before those in it. What is removed meanwhile, or cannot be read, is
// left out. A cgroup has dozens of files; one that has none below it is not read, since it has no link but its own two
// (kernfs_refresh_inode in Linux's fs/kernfs/inode.c).
func walkDirs(dir string, each func(dir string)) {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	each(dir)
	if st.Nlink == 2 {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			walkDirs(filepath.Join(dir, e.Name()), each)
		}
	}
}

// kill kills everything in c, so that no fork can slip through, and waits until it is dead. cgroup.kill (Linux 5.14) is
// atomic. Before that, the cgroup is frozen, so that nothing can fork, and its processes are killed one by one.
func (c cgroup) kill(deadline time.Time) ([]Proc, error) {
	var killed []Proc
	for _, p := range c.procs() {
		if p.alive() {
			killed = append(killed, p.Proc)
		}
	}
	err := writeFile(filepath.Join(c.dir, "cgroup.kill"), "1")
	if errors.Is(err, os.ErrNotExist) {
		if _, gone := os.Stat(c.dir); gone != nil {
			return killed, nil
		}
		return c.killFrozen(deadline)
	}
	if err != nil {
		return killed, fmt.Errorf("kill cgroup %s: %w", c.dir, err)
	}
	return killed, c.waitEmpty(deadline)
}

func (c cgroup) killFrozen(deadline time.Time) ([]Proc, error) {
	// Freezing takes its time and kill does not need it complete: rounds catch who forked before it froze.
	_ = writeFile(filepath.Join(c.dir, "cgroup.freeze"), "1")
	var killed []Proc
	for {
		if pop, err := c.populated(); err != nil || !pop {
			return killed, err
		}
		var hs []handle
		var first error
		for _, p := range c.procs() {
			h, ok, err := hold(p)
			if ok {
				hs = append(hs, h)
				err = h.signal(unix.SIGKILL)
			}
			if first == nil {
				first = err
			}
		}
		left := waitDead(hs, deadline)
		for _, h := range hs {
			killed = append(killed, h.Proc)
			h.close()
		}
		if len(left) > 0 || !time.Now().Before(deadline) {
			return killed, fmt.Errorf("kill frozen cgroup %s: %w", c.dir, errors.Join(first, os.ErrDeadlineExceeded))
		}
	}
}

// remove removes c and what is below it, deepest first. It fails while a living process is in one of
// them.
func (c cgroup) remove() error {
	// Few runs make cgroups of their own, and without any this is enough.
	if c.removeOne() == nil {
		return nil
	}
	var first error
	for _, dir := range slices.Backward(c.dirs()) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) && first == nil {
			first = fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
	return first
}

// removeOne removes c, unless a living process or another cgroup is in it. That it is gone already is no error.
func (c cgroup) removeOne() error {
	if err := unix.Rmdir(c.dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// writeFile writes to a file of the kernel's, in one call. It makes none.
func writeFile(path, s string) error {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := retry(func() (int, error) { return unix.Write(fd, []byte(s)) }); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
