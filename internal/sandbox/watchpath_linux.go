//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
