package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

// Lock keeps every other job from changing a folder, its subfolders or a
// folder around it. The kernel releases it when its process dies; no child
// process inherits it.
type Lock struct{ files []*os.File }

// BusyError says that another run or program has a folder locked.
type BusyError struct {
	Path   string // the folder that was asked for
	Holder string // who has it, e.g. "process 4711 (direct on /home/ann/site)"; "" when unknown
	use    string
}

func (e *BusyError) Error() string {
	if e.Holder == "" {
		return e.Path + " is in use by another job"
	}
	return e.Path + " is in use by " + e.Holder
}

// Lock locks what a job changes in place: the folder of isolation direct. For
// every other isolation it returns a Lock of nothing. It never waits: the error
// is a *BusyError when the folder is taken. It is to be held from before Prepare
// until after Collect.
func (m *Manager) Lock(ctx context.Context, w job.Workspace) (*Lock, error) {
	if w.Isolation != job.Direct {
		return &Lock{}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	return m.lockPath(w.Path, "direct")
}

// Close releases the lock. It may be called more than once, and on nil.
func (l *Lock) Close() error {
	if l == nil {
		return nil
	}
	for _, f := range l.files {
		unlock(f)
	}
	l.files = nil
	return nil
}

// unlock frees the lock on f now. Closing alone would leave it with a child that
// is just being forked, until that executes its program.
func unlock(f *os.File) {
	unix.Flock(int(f.Fd()), unix.LOCK_UN) //nolint:errcheck // closing is what counts then
	f.Close()
}

// lockPath takes a shared lock on each folder above path and an exclusive one
// on path itself. Two paths then collide exactly if one is the other or lies
// above it, and no lock has to look at all others.
//
// These are locks on files in a folder that all programs of the user share. On path
// itself there is one besides: it holds among users, too, and wherever that folder is.
func (m *Manager) lockPath(path, use string) (*Lock, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := new(Lock)
	for p := real; ; p = filepath.Dir(p) {
		how := unix.LOCK_SH
		if p == real {
			how = unix.LOCK_EX
		}
		f, err := flock(m.folders, "path-", p, how)
		if errors.Is(err, unix.EWOULDBLOCK) {
			l.Close()
			return nil, m.busy(real, p)
		}
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		l.files = append(l.files, f)
		if p == real {
			note, _ := json.Marshal(lockNote{Path: real, PID: os.Getpid(), Use: use})
			if err := rewrite(f, note); err != nil {
				l.Close()
				return nil, fmt.Errorf("lock %s: %w", path, err)
			}
		}
		if p == filepath.Dir(p) {
			break
		}
	}
	f, err := openFolder(real)
	if err == nil {
		err = tryFlock(f, unix.LOCK_EX)
	}
	switch {
	case err == nil:
		l.files = append(l.files, f)
	case errors.Is(err, unix.EWOULDBLOCK):
		l.Close()
		return nil, &BusyError{Path: real, Holder: "another program, which has locked the folder itself"}
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EACCES):
		// NFS locks no folder, and one that may not be listed cannot be opened.
	default:
		l.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return l, nil
}

// lockNote is what the exclusive holder of a path writes into its lock file,
// for the message that others get. It stays there after the lock is released.
type lockNote struct {
	Path string `json:"path"`
	PID  int    `json:"pid"`
	Use  string `json:"use"` // direct, copy or apply
}

// busy finds out who holds the lock at which the attempt to lock path failed.
// The holder may have changed since; the answer only explains.
func (m *Manager) busy(path, at string) *BusyError {
	b := &BusyError{Path: path}
	files, _ := filepath.Glob(filepath.Join(m.folders, "path-*.lock"))
	for _, name := range files {
		raw, err := os.ReadFile(name)
		var n lockNote
		if err != nil || json.Unmarshal(raw, &n) != nil || n.Path == "" {
			continue
		}
		if n.Path != at && !(at == path && inside(n.Path, path)) {
			continue
		}
		if f, err := flock(m.folders, "path-", n.Path, unix.LOCK_SH); err == nil {
			unlock(f) // it is not held exclusively: an old note
			continue
		}
		b.Holder, b.use = fmt.Sprintf("process %d (%s on %s)", n.PID, n.Use, n.Path), n.Use
		break
	}
	return b
}

// flock opens the lock file of key in dir and locks it without waiting. The files
// are never deleted: another process may be about to lock the one that is deleted.
func flock(dir, prefix, key string, how int) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(lockFile(dir, prefix, key), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryFlock(f, how); err != nil {
		return nil, err
	}
	return f, nil
}

func lockFile(dir, prefix, key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(dir, prefix+hex.EncodeToString(sum[:16])+".lock")
}

// tryFlock locks f, or closes it.
func tryFlock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			f.Close()
			return err
		}
	}
}

// heldLocks are our own short locks: one for each job's home, one for each
// repository while branches are removed from it. Every command that runs under
// them inherits their file descriptors, so that after a crash of this process
// the next one waits until the last command that it left behind has ended.
type heldLocks []*os.File

func (h heldLocks) release() {
	for _, f := range h {
		f.Close()
	}
}

// makeAndLockJob locks the job's home, which it makes if it is not there.
func (m *Manager) makeAndLockJob(ctx context.Context, id job.ID) (heldLocks, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	for {
		if err := makeDir(m.home(id)); err != nil {
			return nil, err
		}
		held, err := m.lockJob(ctx, id)
		if !errors.Is(err, fs.ErrNotExist) {
			return held, err
		}
	}
}

// lockJob locks the job's home, or returns fs.ErrNotExist. The lock is on the
// folder itself, which costs no file of its own.
func (m *Manager) lockJob(ctx context.Context, id job.ID) (heldLocks, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	home := m.home(id)
	return poll(ctx, home, func() (*os.File, error) {
		for {
			f, err := openFolder(home)
			if err != nil {
				return nil, err
			}
			err = tryFlock(f, unix.LOCK_EX)
			if errors.Is(err, unix.EBADF) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
				return flock(m.locks, "job-", home, unix.LOCK_EX) // e.g. NFS locks no folder
			}
			if err != nil {
				return nil, err
			}
			// It may have been removed since it was opened, and made again by another.
			locked, err := f.Stat()
			if err != nil {
				f.Close()
				return nil, err
			}
			if now, err := os.Stat(home); err == nil && os.SameFile(locked, now) {
				return f, nil
			}
			f.Close()
		}
	})
}

// openFolder is os.Open for a folder, which the runtime's poller need not try to watch.
func openFolder(path string) (*os.File, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// isEmptyHome reports whether the lock is one on a job's home that holds nothing.
func (h heldLocks) isEmptyHome() bool {
	_, err := h[0].Readdirnames(1)
	return errors.Is(err, io.EOF)
}

func (m *Manager) lockRepo(ctx context.Context, r *repo) (heldLocks, error) {
	return m.waitLock(ctx, "repo-", r.Common)
}

// waitLock waits for an exclusive lock.
func (m *Manager) waitLock(ctx context.Context, prefix, key string) (heldLocks, error) {
	return poll(ctx, key, func() (*os.File, error) { return flock(m.locks, prefix, key, unix.LOCK_EX) })
}

// poll asks for the lock on key again and again instead of blocking, since a
// blocked flock cannot be cancelled.
func poll(ctx context.Context, key string, try func() (*os.File, error)) (heldLocks, error) {
	for {
		f, err := try()
		if err == nil {
			return heldLocks{f}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", key, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock on %s: %w", key, context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}

// useApply is what Apply writes into a lock file.
const useApply = "apply"

const lockPoll = 15 * time.Millisecond

func rewrite(f *os.File, b []byte) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(b, 0)
	return err
}

// inside reports whether path is dir or lies in it. Both are clean.
func inside(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+string(filepath.Separator))
}
