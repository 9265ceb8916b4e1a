package statedir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Documents returns the documents that lie in the state directory.
func (d *Dir) Documents() Documents { return Files(d.path, IsolationsFile, NodesFile, TriggersFile) }

// Files returns documents that are files in a folder, which must be there. Only their
// owner may have access to them, or they are not read; those named open are no secrets.
// A file NAME.lock beside each guards its changes.
func Files(dir string, open ...string) Documents { return &files{dir, open} }

type files struct {
	dir  string
	open []string
}

// Where returns the path of the file.
func (f *files) Where(name string) string { return filepath.Join(f.dir, name) }

// Read implements Documents.
func (f *files) Read(_ context.Context, name string) (text []byte, version string, err error) {
	return readFile(f.Where(name), !slices.Contains(f.open, name))
}

// Version implements Documents.
func (f *files) Version(_ context.Context, name string) (string, error) {
	return FileVersion(f.Where(name))
}

// Write implements Documents.
func (f *files) Write(ctx context.Context, name string, text []byte, version string) (string, error) {
	path := f.Where(name)
	if len(text) > MaxDocument {
		return "", fmt.Errorf("write %s: %d bytes are more than the %d MiB that are read again", path, len(text), MaxDocument>>20)
	}
	if err := context.Cause(ctx); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	unlock, err := lockBeside(path)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	defer unlock()
	now, err := stampAt(path)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	if content(now.version()) != content(version) {
		return "", fmt.Errorf("write %s: %w", path, ErrChanged)
	}
	if err := replace(path, text, now.mtime); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	if now, err = stampAt(path); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return now.version(), nil
}

// stamp tells one version of a file from another without reading it. Since each write
// gives the file a later mtime than it had, no stamp comes back.
type stamp struct {
	mtime, size int64 // mtime in ns since 1970
	inode       uint64
	mode        fs.FileMode
}

// version returns the stamp as a text; "" for that of no file.
func (s stamp) version() string {
	if s == (stamp{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d %04o", s.mtime, s.size, s.inode, uint32(s.mode))
}

// content returns what of a version changes with the text.
func content(version string) string {
	of, _, _ := strings.Cut(version, " ")
	return of
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{mtime: info.ModTime().UnixNano(), size: info.Size(), mode: info.Mode()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// stampAt returns the stamp of the file at path, the zero stamp if there is none.
func stampAt(path string) (stamp, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return stamp{}, nil
	}
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

// FileVersion returns what tells the file at path, as it is now, from what it was or will
// be; "" if there is none. It changes with the file's mode, too.
func FileVersion(path string) (string, error) {
	s, err := stampAt(path)
	return s.version(), err
}

// ReadPrivate reads a file of at most MaxDocument bytes that only its owner may read,
// with its FileVersion. One that is not there is empty and has the version "".
func ReadPrivate(path string) (text []byte, version string, err error) { return readFile(path, true) }

func readFile(path string, private bool) ([]byte, string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	s := stampOf(info)
	if !s.mode.IsRegular() {
		return nil, "", fmt.Errorf("%s is no regular file", path)
	}
	if private && s.mode.Perm()&0o077 != 0 {
		return nil, "", fmt.Errorf("%s is open to other users (mode %04o); run: chmod 600 %s", path, s.mode.Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxDocument+1))
	if err != nil {
		return nil, "", err
	}
	if len(text) > MaxDocument {
		return nil, "", fmt.Errorf("%s is larger than %d MiB", path, MaxDocument>>20)
	}
	return text, s.version(), nil
}

// lockBeside takes the lock that guards changes of the file at path, and waits for
// it. It is free again after unlock, or when this process has died.
func lockBeside(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
	return func() {
		// Closing alone would leave it with a child that is just being forked.
		unix.Flock(int(f.Fd()), unix.LOCK_UN) //nolint:errcheck // closing is what counts then
		f.Close()
	}, nil
}
