//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxReported = 256     // different things that are told of a watched run
	maxKnown    = 1 << 14 // paths whose verdict is remembered
	maxPath     = 4096    // PATH_MAX
)

// watcher knows what a watched run would be refused. It belongs to the notifier's goroutine.
type watcher struct {
	named map[string]rights // by real path, see Policy.resolve
	folds folds
	calls map[int32]fileCall
	known map[wish]bool   // that need no second look
	told  map[Denial]bool // at most maxReported
	buf   [maxPath]byte
	root  string // of this process' mount namespace
}

// wish is a path as a run has named it, and what it wants of it.
type wish struct {
	path string
	want rights
}

func newWatcher(named map[string]rights, broad []string) *watcher {
	w := &watcher{
		named: named, folds: newFolds(named, broad), calls: make(map[int32]fileCall),
		known: make(map[wish]bool), told: make(map[Denial]bool),
	}
	for _, c := range slices.Concat(fileCalls(), oldFileCalls()) {
		w.calls[int32(c.nr)] = c
	}
	w.root, _ = os.Readlink("/proc/self/ns/mnt")
	return w
}

// fileCall is a call that Landlock looks at, and which of its arguments name files.
type fileCall struct {
	nr    uint32
	name  string
	kind  fileKind
	paths []pathArg
	flags int // the argument with the flags of opens, or of opensHow with its address
}

// pathArg is a path: the numbers of the argument that is its folder, -1 for none, and of the path itself.
type pathArg struct{ folder, path int }

type fileKind int

const (
	opens    fileKind = iota
	opensHow          // flags stand in memory
	opensNew          // as creat(2) does
	executes
	creates // entries, where none may be
	removes // entries, which must be there
	moves   // the first from where it is to the second
	changes // the file itself
)

func fileCalls() []fileCall {
	at := func(args ...int) (list []pathArg) {
		for i := 0; i < len(args); i += 2 {
			list = append(list, pathArg{args[i], args[i+1]})
		}
		return list
	}
	return []fileCall{
		{unix.SYS_OPENAT, "openat", opens, at(0, 1), 2},
		{unix.SYS_OPENAT2, "openat2", opensHow, at(0, 1), 2},
		{unix.SYS_EXECVE, "execve", executes, at(-1, 0), 0},
		{unix.SYS_EXECVEAT, "execveat", executes, at(0, 1), 0},
		{unix.SYS_TRUNCATE, "truncate", changes, at(-1, 0), 0},
		{unix.SYS_MKDIRAT, "mkdirat", creates, at(0, 1), 0},
		{unix.SYS_MKNODAT, "mknodat", creates, at(0, 1), 0},
		{unix.SYS_SYMLINKAT, "symlinkat", creates, at(1, 2), 0},
		{unix.SYS_UNLINKAT, "unlinkat", removes, at(0, 1), 0},
		{unix.SYS_RENAMEAT2, "renameat2", moves, at(0, 1, 2, 3), 0},
		{unix.SYS_LINKAT, "linkat", moves, at(0, 1, 2, 3), 0},
	}
}

// reportRules are the calls that a report looks at: those that the policy refuses or has decided, and those for files.
// Those that the kernel would seem to lack are no refusals, since programs do without.
func reportRules(p *Policy) []rule {
	as := *p
	as.Level = Standard
	list := as.rules()
	for i := range list {
		if list[i].verdict == absent {
			list[i].verdict = allowed
		}
	}
	for _, c := range slices.Concat(fileCalls(), oldFileCalls()) {
		list = append(list, rule{nr: c.nr, name: c.name, verdict: decided})
	}
	return list
}

// look lets a call be made as if nobody had asked, and tells what of it would be refused.
func (n *notifier) look(q notification) {
	defer n.proceed(q)
	for _, r := range n.rules {
		if !r.holds(uint32(q.nr), q.args) {
			continue
		}
		switch call, file := n.watch.calls[q.nr]; {
		case r.verdict != decided:
			n.report(q, Denial{Call: r.name, Detail: detail(r.name, q.args), Hostile: r.hostile})
		case q.nr == unix.SYS_LISTEN:
			n.lookListen(q)
		case q.nr == unix.SYS_CONNECT:
			n.lookConnect(q)
		case file:
			n.lookFiles(q, call)
		}
		return
	}
}

// proceed has the kernel make the call itself.
func (n *notifier) proceed(q notification) {
	r := response{id: q.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	_ = n.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}

// report tells a denial once, if the caller is still the one that was looked at.
func (n *notifier) report(q notification, d Denial) {
	w := n.watch
	if w.told[d] || len(w.told) >= maxReported || !n.asks(q) {
		return
	}
	w.told[d] = true
	n.denied(d)
}

// lookListen remembers where the run serves.
func (n *notifier) lookListen(q notification) {
	fd, errno := n.socket(q)
	if errno != 0 {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return
	}
	if len(n.served) >= maxServed {
		n.forget(q)
	}
	if addr, ok := boundTo(fd); ok && len(n.served) < maxServed {
		n.served[serving{addr, st.Ino}] = true
	}
}

// lookConnect tells of connections by TCP: other sockets are refused before.
func (n *notifier) lookConnect(q notification) {
	length := uint32(q.args[2])
	if int32(length) < 0 || length > maxAddress {
		return
	}
	raw, errno := readMemory(int(q.pid), q.args[1], int(length))
	if errno != 0 {
		return
	}
	addr, _, ok := address(raw)
	if !ok || n.permits(q, addr) {
		return
	}
	fd, errno := n.socket(q)
	if errno != 0 {
		return
	}
	defer unix.Close(fd)
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil && kind == unix.SOCK_STREAM {
		n.report(q, Denial{Call: "connect", Detail: addr.String()})
	}
}

// lookFiles tells of what a call would do with files.
func (n *notifier) lookFiles(q notification, call fileCall) {
	w := n.watch
	var flags uint64
	switch call.kind {
	case opens:
		flags = uint64(uint32(q.args[call.flags]))
	case opensHow:
		how, errno := readMemory(int(q.pid), q.args[call.flags], 8)
		if errno != 0 {
			return
		}
		flags = binary.NativeEndian.Uint64(how)
	case opensNew:
		flags = unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC
	}
	for i, arg := range call.paths {
		path := w.path(q, arg)
		if path == "" {
			continue
		}
		switch {
		case call.kind == opens || call.kind == opensHow || call.kind == opensNew:
			n.lookOpen(q, path, flags)
		case call.kind == executes:
			n.want(q, path, readable)
		case call.kind == changes:
			n.want(q, path, writable)
		case call.kind == removes || call.kind == moves && i == 0:
			if there(path) {
				n.want(q, folderOf(path), writable)
			}
		case call.kind == moves || !there(path):
			n.want(q, folderOf(path), writable)
		}
	}
}

func (n *notifier) lookOpen(q notification, path string, flags uint64) {
	switch {
	case flags&unix.O_PATH != 0: // opens nothing
	case flags&unix.O_TMPFILE == unix.O_TMPFILE:
		n.want(q, path, writable)
	case flags&unix.O_CREAT != 0 && !there(path):
		n.want(q, folderOf(path), writable)
	case flags&(unix.O_CREAT|unix.O_EXCL) == unix.O_CREAT|unix.O_EXCL: // fails
	case flags&(unix.O_ACCMODE|unix.O_TRUNC) == 0:
		n.want(q, path, readable)
	default:
		n.want(q, path, writable)
	}
}

// want tells if a file or a folder that there is may not be read or written. What the user may not read or write either
// is no denial.
func (n *notifier) want(q notification, path string, want rights) {
	w, key := n.watch, wish{path, want}
	if w.known[key] {
		return
	}
	real, isFolder, ok := realPath(path)
	if !ok {
		return
	}
	if len(w.known) >= maxKnown {
		clear(w.known)
	}
	has := w.rights(real)
	if has >= want || strings.HasPrefix(real, "/proc/") {
		w.known[key] = true
		return
	}
	mode, call := uint32(unix.R_OK), DeniedRead
	if want == writable {
		mode, call = unix.W_OK, DeniedWrite
	}
	if unix.Faccessat(unix.AT_FDCWD, real, mode, unix.AT_EACCESS) != nil || !w.shares(q) {
		return
	}
	w.known[key] = true
	d := Denial{Call: call, Hidden: has == hidden && w.hides(real)}
	d.Detail, d.Broad = w.folds.fold(real, isFolder)
	n.report(q, d)
}

// rights are those of the longest path that the policy names and that holds path.
func (w *watcher) rights(path string) rights {
	r, _ := w.nearest(path)
	return r
}

// hides says whether the policy hides path, in contrast to not naming it.
func (w *watcher) hides(path string) bool {
	_, named := w.nearest(path)
	return named
}

func (w *watcher) nearest(path string) (r rights, named bool) {
	for {
		if r, ok := w.named[path]; ok {
			return r, true
		}
		if path == "/" || path == "." {
			return hidden, false
		}
		path = filepath.Dir(path)
	}
}

// shares says whether the caller sees the files that this process does. Others, such as a container's, have files of
// their own.
func (w *watcher) shares(q notification) bool {
	proc := "/proc/" + strconv.Itoa(int(q.pid))
	mounts, err := os.Readlink(proc + "/ns/mnt")
	if err != nil || mounts != w.root {
		return false
	}
	root, err := os.Readlink(proc + "/root")
	return err == nil && root == "/"
}

// path is what an argument names, absolute and as the caller wrote it; "" for what is no file of the host's, or cannot be
// read.
func (w *watcher) path(q notification, arg pathArg) string {
	text, ok := w.text(int(q.pid), q.args[arg.path])
	if !ok || text == "" {
		return ""
	}
	if text[0] != '/' {
		link := "/proc/" + strconv.Itoa(int(q.pid)) + "/cwd"
		if arg.folder >= 0 && int32(q.args[arg.folder]) != unix.AT_FDCWD {
			link = "/proc/" + strconv.Itoa(int(q.pid)) + "/fd/" + strconv.Itoa(int(int32(q.args[arg.folder])))
		}
		folder, err := os.Readlink(link)
		if err != nil || !filepath.IsAbs(folder) {
			return ""
		}
		text = folder + "/" + text
	}
	// These lead to what each process has of its own.
	for _, own := range []string{"/proc/", "/dev/fd", "/dev/std"} {
		if strings.HasPrefix(text, own) {
			return ""
		}
	}
	return text
}

// text reads a string that ends with a NUL, page by page, since what follows it may not be there.
func (w *watcher) text(pid int, at uint64) (string, bool) {
	const page = 4096
	for n := 0; n < maxPath; {
		size := min(maxPath-n, page-int(at%page))
		local := []unix.Iovec{{Base: &w.buf[n], Len: uint64(size)}}
		got, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: size}}, 0)
		if err != nil || got <= 0 {
			return "", false
		}
		if end := bytes.IndexByte(w.buf[n:n+got], 0); end >= 0 {
			return string(w.buf[:n+end]), true
		}
		n, at = n+got, at+uint64(got)
	}
	return "", false
}

// there says whether an entry exists, a link counting as itself.
func there(path string) bool {
	var st unix.Stat_t
	return !errors.Is(unix.Lstat(path, &st), unix.ENOENT)
}

// folderOf is the folder of an entry, as the caller wrote it.
func folderOf(path string) string {
	path = strings.TrimRight(path, "/")
	return path[:strings.LastIndexByte(path, '/')+1] + "."
}

// realPath follows the links of a path to what is there, without opening it.
func realPath(path string) (real string, isFolder, ok bool) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, false
	}
	real, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return real, st.Mode&unix.S_IFMT == unix.S_IFDIR, err == nil && filepath.IsAbs(real)
}
