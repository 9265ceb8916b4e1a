package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// readStat reads /proc/PID/stat. An error matching os.ErrNotExist or ESRCH says that there is no such process.
func readStat(pid int) (ProcInfo, error) {
	var buf [1024]byte // the line is shorter: 52 numbers and a name of 15 bytes
	n, err := readInto("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return ProcInfo{}, fmt.Errorf("read stat of process %d: %w", pid, err)
	}
	return parseStat(buf[:n])
}

// readInto reads the start of a small file without the bookkeeping of os.File: a walk reads hundreds of them.
func readInto(path string, buf []byte) (int, error) { return readAt(unix.AT_FDCWD, path, buf) }

// readAt is readInto for a path from the folder dir.
func readAt(dir int, path string, buf []byte) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return retry(func() (int, error) { return unix.Read(fd, buf) })
}

// readFile is os.ReadFile for files of the kernel's, which are short and need no poller.
func readFile(path string) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 512)
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return text, nil
		}
		if text = text[:len(text)+n]; len(text) == cap(text) {
			text = slices.Grow(text, cap(text))
		}
	}
}

func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// parseStat parses proc_pid_stat(5). The command name stands in parentheses and may itself hold spaces, parentheses and
// newlines, so fields are counted from the last one.
func parseStat(line []byte) (ProcInfo, error) {
	bad := func() (ProcInfo, error) {
		return ProcInfo{}, fmt.Errorf("parse process stat %q: unknown format", line)
	}
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return bad()
	}
	f := bytes.Fields(line[end+1:]) // f[0] is field 3
	if len(f) < 49 || len(f[0]) != 1 {
		return bad()
	}
	p := ProcInfo{state: f[0][0]}
	p.Comm = string(line[open+1 : end])
	var err error
	num := func(b []byte) int {
		n, e := strconv.Atoi(string(b))
		err = errors.Join(err, e)
		return n
	}
	p.Pid = num(line[:open-1])
	p.PPid, p.PGid, p.Sid, p.threads = num(f[1]), num(f[2]), num(f[3]), num(f[17])
	wide := func(b []byte) uint64 {
		n, e := strconv.ParseUint(string(b), 10, 64)
		err = errors.Join(err, e)
		return n
	}
	const pfKthread = 0x00200000 // include/linux/sched.h
	p.Start, p.kernel, p.envStart, p.envEnd = wide(f[19]), wide(f[6])&pfKthread != 0, wide(f[47]), wide(f[48])
	if err != nil {
		return bad()
	}
	return p, nil
}

// table is one walk over /proc, by pid. It holds the dead too. It is no snapshot: processes come and go meanwhile.
type table map[int]ProcInfo

func walk() (table, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	tab := make(table, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readStat(pid); err == nil { // else it is gone
			tab[pid] = p
		}
	}
	return tab, nil
}

// below lists roots and all their descendants, parents first.
func (tab table) below(roots map[int]bool) []ProcInfo {
	children := make(map[int][]int, len(tab))
	for pid, p := range tab {
		children[p.PPid] = append(children[p.PPid], pid)
	}
	var out []ProcInfo
	seen := make(map[int]bool)
	var queue []int
	for pid := range roots {
		queue = append(queue, pid)
	}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		if p, ok := tab[pid]; ok {
			out = append(out, p)
		}
		queue = append(queue, children[pid]...)
	}
	return out
}

// above lists a process and its ancestors.
func (tab table) above(pid int) map[int]bool {
	out := make(map[int]bool)
	for pid > 0 && !out[pid] {
		out[pid] = true
		pid = tab[pid].PPid
	}
	return out
}

// While a process is in execve(2), its environment reads as empty. There is no event for the end of that; it lasts as
// long as the kernel takes to map a program, and on a busy machine as long as the process waits for a processor meanwhile.
const (
	execPoll  = 200 * time.Microsecond // at first; each wait is half as long again
	execLimit = 2 * time.Second        // all waits together, after which a process, e.g. one whose file server is away, is given up
)

// readTag finds the value of a variable in the environment that a process was started with. It is "" when there is none
// or when the environment may not be read (another user's process, or one that gained privileges), unless it is that of
// a core, which shows its tag otherwise.
func readTag(pid int, tag string) string {
	var before ProcInfo
	alike, pause := 0, execPoll
	// What was waited counts, not the clock: this process may have stood still, too.
	for waited := time.Duration(0); waited < execLimit; waited, pause = waited+pause, pause+pause/2 {
		env, err := readEnviron(pid)
		if errors.Is(err, os.ErrPermission) {
			return coreRun(Args(pid))
		}
		if value := tagIn(env, tag); value != "" || errors.Is(err, os.ErrNotExist) {
			return value
		}
		p, statErr := readStat(pid)
		if statErr != nil || !p.alive() || p.kernel {
			return ""
		}
		if len(env) > 0 && uint64(len(env)) == p.envEnd-p.envStart {
			return "" // all of it was read, and the tag is not in it
		}
		// An empty one is what a process has in the middle of execve too; so is what a program shows that has moved its
		// environment away (prctl(2), PR_SET_MM). It is believed when nothing has changed for a while.
		if p.envEnd != 0 && p.envEnd == before.envEnd {
			if alike++; alike == 12 { // 50 ms
				return ""
			}
		} else {
			alike = 0
		}
		before = p
		time.Sleep(pause)
	}
	return ""
}

// readEnviron reads a process's environment in a single call: if the process replaces its program between two calls, the
// second one finds the end of the file, and half an environment looks like a whole one that lacks its last variables.
func readEnviron(pid int) ([]byte, error) {
	for size := 32 << 10; ; size *= 2 {
		buf := make([]byte, size)
		n, err := readInto("/proc/"+strconv.Itoa(pid)+"/environ", buf)
		if err != nil {
			return nil, err
		}
		if n < size || size >= maxEnviron {
			return buf[:n], nil
		}
	}
}

// maxEnviron is more than the kernel lets a program have (6 MiB of arguments and environment together, execve(2)).
const maxEnviron = 8 << 20

func tagIn(environ []byte, tag string) string {
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte(tag+"=")); ok {
			return string(v)
		}
	}
	return ""
}

// under reports whether a slash-separated name is prefix or lies below it. The empty prefix holds every name but "".
func under(name, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	if name == "" {
		return false
	}
	return prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/")
}

// readCgroup is the cgroup v2 path of a process, as seen from our cgroup namespace.
func readCgroup(pid string) string {
	b, err := readFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(path, "\n")
		}
	}
	return ""
}

// adoptedFile lists the children that this process has adopted, and perhaps some that it has forked, by a file that the
// kernel keeps. It fails where the kernel was built without it. See proc_pid_tid_children(5): the list may lack entries
// when a child is reaped during the read, so the caller must rule that out.
//
// There is such a file for each thread. An orphan goes to the first thread of its new parent that is not about to exit
// (find_new_reaper in the kernel's exit.c, since Linux 3.19), as do the children of a thread that exits. That is the
// main thread, which the Go runtime never lets exit. The other threads have what they have forked.
func adoptedFile() ([]int, error) {
	list, err := readFile("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
	if err != nil {
		return nil, err
	}
	var pids []int
	for f := range bytes.FieldsSeq(list) {
		pid, err := strconv.Atoi(string(f))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Alive lists the living processes, this one excepted, whose environment carries DefaultTag with a value that is prefix
// or lies below it in the sense of a path: "i/7" holds "i/7/1" but not "i/70/1".
func Alive(prefix string) ([]Proc, error) {
	tab, err := walk()
	if err != nil {
		return nil, err
	}
	var out []Proc
	for pid, p := range tab {
		if pid != os.Getpid() && p.alive() && under(readTag(pid, DefaultTag), prefix) {
			out = append(out, p.Proc)
		}
	}
	return out, nil
}

// Parent returns the pid of a living process's parent, or ErrGone.
func Parent(pid int) (int, error) {
	p, err := readStat(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && !p.alive() {
		return 0, ErrGone
	}
	return p.PPid, err
}

// Below lists the living descendants of a process.
func Below(pid int) ([]Proc, error) {
	tab, err := walk()
	if err != nil {
		return nil, err
	}
	var out []Proc
	for _, p := range tab.below(map[int]bool{pid: true}) {
		if p.Pid != pid && p.alive() {
			out = append(out, p.Proc)
		}
	}
	return out, nil
}
