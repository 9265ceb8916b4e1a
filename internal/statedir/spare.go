package statedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Temps lends the folders of Temp to the runs of one core. One that comes back
// empty is kept under another name for the next run: file systems look long
// for a place for a new folder while many were removed lately (ext4 goes
// around what was freed within the last minute, one by one).
type Temps struct {
	dir    *Dir
	prefix string // of the spare folders' paths

	mu     sync.Mutex // guards what follows
	made   int
	spare  []spare
	closed bool
}

type spare struct {
	path string
	info os.FileInfo // by which it is known again
}

// maxSpare bounds how many empty folders are kept.
const maxSpare = 64

// Temps returns a lender for the core with this process id. It touches nothing
// before its first use, and Close ends it.
func (d *Dir) Temps(pid int) *Temps {
	return &Temps{dir: d, prefix: filepath.Join(os.TempDir(), d.tempPrefix()+"spare-"+strconv.Itoa(pid)+"-")}
}

// Take makes the empty folder Temp(tag), with mode 0700, whatever was there.
func (t *Temps) Take(tag string) (path string, err error) {
	path = t.dir.Temp(tag)
	if s, ok := t.pop(); ok {
		// It replaces an empty folder, and nothing else.
		if syscall.Rename(s.path, path) == nil {
			// A cleaner of old files may have removed it, and anybody made another. That
			// nobody has used it is told by the time of its last change, and by what it holds
			// if that was a moment ago: many kernels tell the time in ticks.
			if now, err := os.Lstat(path); err == nil && os.SameFile(now, s.info) && private(now) && now.ModTime().Equal(s.info.ModTime()) && holdsNothing(path) {
				return path, nil
			}
		} else {
			os.Remove(s.path)
		}
	}
	if err := errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700)); err != nil {
		return "", fmt.Errorf("make folder for temporary files: %w", err)
	}
	return path, nil
}

// Return takes a folder back, or removes it with all that is in it. Nobody
// may use it any more.
func (t *Temps) Return(path string) error {
	info, err := os.Lstat(path)
	if err == nil && private(info) && holdsNothing(path) && t.push(path, info) {
		return nil
	}
	return os.RemoveAll(path)
}

// Close removes the spare folders; what is returned later is removed at once.
func (t *Temps) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var errs []error
	for _, s := range t.spare {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	t.spare = nil
	return errors.Join(errs...)
}

func (t *Temps) pop() (s spare, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.spare) - 1
	if last < 0 {
		return spare{}, false
	}
	s, t.spare = t.spare[last], t.spare[:last]
	return s, true
}

// push keeps the folder, unless there are enough of them.
func (t *Temps) push(path string, info os.FileInfo) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.spare) >= maxSpare {
		return false
	}
	t.made++
	s := spare{t.prefix + strconv.Itoa(t.made), info}
	if err := syscall.Rename(path, s.path); err != nil {
		return false
	}
	t.spare = append(t.spare, s)
	return true
}

// private reports whether it is a folder of this user, for nobody else.
func private(info os.FileInfo) bool {
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode() == os.ModeDir|0o700 && int(sys.Uid) == os.Geteuid()
}

func holdsNothing(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}
