//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxReported = 256     // different things that are told of a watched run
	maxKnown    = 1 << 14 // paths whose verdict is remembered
	maxPath     = 4096    // PATH_MAX
)

// watcher knows what a watched run would be refused.
type watcher struct {
	named map[string]rights // by real path, see Policy.resolve
	folds folds
	calls map[int32]fileCall
	root  string        // of this process' mount namespace
	buf   [maxPath]byte // of the notifier's goroutine

	mu    sync.Mutex // guards what follows, and the calls of Policy.Denied
	known map[wish]bool
	told  map[Denial]bool // at most maxReported
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

// look tells what of a call would be refused, and then lets it be made as if nobody had asked. Files are looked for beside
// the answers to other calls: their file system may be one that the run itself serves.
func (n *notifier) look(q notification) {
	looks := n.glance(q)
	if len(looks) > 0 {
		select {
		case n.slots <- struct{}{}:
			n.pending.Go(func() {
				for _, f := range looks {
					f()
				}
				n.proceed(q)
				<-n.slots
			})
			return
		default: // so many are being looked for that nobody knows when they are found
		}
	}
	n.proceed(q)
}

// glance tells what a call's arguments say, and returns what has to be done to say more.
func (n *notifier) glance(q notification) []func() {
	for _, r := range n.rules {
		if r.unasked || !r.holds(uint32(q.nr), q.args) {
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
			return n.lookFiles(q, call)
		}
		break
	}
	return nil
}

// proceed has the kernel make the call itself.
func (n *notifier) proceed(q notification) {
	r := response{id: q.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	_ = n.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}

// report tells a denial once, if the caller is still the one that was looked at.
func (n *notifier) report(q notification, d Denial) {
	w := n.watch
	w.mu.Lock()
	defer w.mu.Unlock()
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
	if family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && family == unix.AF_UNIX {
		n.serveUnix(fd, st.Ino)
		return
	}
	n.serve(q, fd, st.Ino)
}

// lookConnect tells of connections by TCP and to Unix sockets: others are refused before.
func (n *notifier) lookConnect(q notification) {
	length := uint32(q.args[2])
	if int32(length) < 0 || length > maxAddress {
		return
	}
	raw, errno := readMemory(int(q.pid), q.args[1], int(length))
	if errno != 0 {
		return
	}
	addr, family, ok := address(raw)
	if family == unix.AF_UNIX && len(raw) >= 2 {
		n.lookConnectUnix(q, raw)
		return
	}
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

func (n *notifier) lookConnectUnix(q notification, raw []byte) {
	path, errno := n.unixPath(q, raw)
	if errno == 0 {
		who := n.listens(path)
		_ = unix.Close(path)
		if who != byOthers {
			return
		}
	} else if errno != unix.EPERM {
		return
	}
	n.report(q, unixDenial(raw))
}

// lookFiles returns what looks at the files that a call is about, but for those of which all is known.
func (n *notifier) lookFiles(q notification, call fileCall) (looks []func()) {
	var flags uint64
	switch call.kind {
	case opens:
		flags = uint64(uint32(q.args[call.flags]))
	case opensHow:
		how, errno := readMemory(int(q.pid), q.args[call.flags], 8)
		if errno != 0 {
			return nil
		}
		flags = binary.NativeEndian.Uint64(how)
	case opensNew:
		flags = unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC
	}
	for i, arg := range call.paths {
		path := n.watch.path(q, arg)
		if path == "" {
			continue
		}
		var f func()
		switch call.kind {
		case opens, opensHow, opensNew:
			f = n.lookOpen(q, path, flags)
		case executes:
			f = n.want(q, path, readable)
		case changes:
			f = n.want(q, path, writable)
		case creates:
			f = n.wantEntry(q, path, func(there bool) bool { return !there })
		case removes:
			f = n.wantEntry(q, path, func(there bool) bool { return there })
		case moves: // the first must be there
			f = n.wantEntry(q, path, func(there bool) bool { return there || i > 0 })
		}
		if f != nil {
			looks = append(looks, f)
		}
	}
	return looks
}

func (n *notifier) lookOpen(q notification, path string, flags uint64) func() {
	want := readable
	if flags&(unix.O_ACCMODE|unix.O_TRUNC) != 0 {
		want = writable
	}
	switch {
	case flags&unix.O_PATH != 0: // opens nothing
		return nil
	case flags&unix.O_TMPFILE == unix.O_TMPFILE:
		return n.want(q, path, writable)
	case flags&unix.O_CREAT == 0:
		return n.want(q, path, want)
	}
	if n.watch.knows(wish{path, writable}) {
		return nil
	}
	return func() {
		switch {
		case !there(path):
			n.find(q, wish{folderOf(path), writable})
		case flags&unix.O_EXCL == 0: // else it fails
			n.find(q, wish{path, want})
		}
	}
}

// wantEntry looks at whether a folder's entries may be changed, if that is what a call does with an entry that is there,
// or is not.
func (n *notifier) wantEntry(q notification, path string, changes func(there bool) bool) func() {
	folder := wish{folderOf(path), writable}
	if n.watch.knows(folder) {
		return nil
	}
	return func() {
		if changes(there(path)) {
			n.find(q, folder)
		}
	}
}

// want looks at whether a file or a folder may be read or written.
func (n *notifier) want(q notification, path string, want rights) func() {
	x := wish{path, want}
	if n.watch.knows(x) {
		return nil
	}
	return func() { n.find(q, x) }
}

// find tells if what there is at a path may not be read or written. What the user may not read or write either is no
// denial.
func (n *notifier) find(q notification, x wish) {
	w := n.watch
	real, isFolder, ok := realPath(x.path)
	if !ok {
		return
	}
	has := w.rights(real)
	if has >= x.want || strings.HasPrefix(real, "/proc/") {
		w.know(x)
		return
	}
	mode, call := uint32(unix.R_OK), DeniedRead
	if x.want == writable {
		mode, call = unix.W_OK, DeniedWrite
	}
	if unix.Faccessat(unix.AT_FDCWD, real, mode, unix.AT_EACCESS) != nil || !w.shares(q) {
		return
	}
	w.know(x)
	d := Denial{Call: call, Hidden: has == hidden && w.hides(real)}
	d.Detail, d.Broad = w.folds.fold(real, isFolder)
	n.report(q, d)
}

// knows says whether nothing is left to be told of a wish.
func (w *watcher) knows(x wish) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[x]
}

func (w *watcher) know(x wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.known) >= maxKnown {
		clear(w.known)
	}
	w.known[x] = true
}
