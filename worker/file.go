package worker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
)

// MaxFile is the largest file that is read or written for a program, in bytes.
const MaxFile = 4 << 20

// What is read and written here is done outside the run's sandbox, on behalf of a
// program that is not trusted. So nothing is reached but by an os.Root of the workspace,
// which no link leads out of, whoever changes folders meanwhile. A link that the run has
// made could still lead to what it may not write within the workspace: to .git, whose
// hooks and configuration other programs execute. So a write follows none: each folder is
// opened by itself, and must be the one that was there and no link a moment before. A
// hard link is harmless: what is written is a new file that takes the place of the old.

// errNotWithin is of a path that names nothing in the workspace.
var errNotWithin = errors.New("it is not in the workspace")

// readFile returns the content of a regular file below dir.
func readFile(dir, path string) ([]byte, error) {
	root, rel, err := openWorkspace(dir, path)
	if err != nil {
		return nil, fileError("read", path, err)
	}
	defer root.Close()
	// Without O_NONBLOCK, opening a pipe waits for its other end.
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fileError("read", path, err)
	}
	defer f.Close()
	if err := regular(f.Stat()); err != nil {
		return nil, fileError("read", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(data) > MaxFile {
		err = errTooLarge
	}
	if err != nil {
		return nil, fileError("read", path, err)
	}
	return data, nil
}

var errTooLarge = fmt.Errorf("it has more than %d bytes", MaxFile)

// writeFile gives a regular file below dir its content, as a whole, and says whether
// there was none. It keeps the file's permissions.
func writeFile(dir, path string, data []byte) (created bool, err error) {
	if len(data) > MaxFile {
		return false, fileError("write", path, errTooLarge)
	}
	root, rel, err := openWorkspace(dir, path)
	if err != nil {
		return false, fileError("write", path, err)
	}
	if slices.ContainsFunc(names(rel), gitName) {
		root.Close()
		return false, fileError("write", path, errGit)
	}
	folder, err := openFolder(root, filepath.Dir(rel))
	if err != nil {
		return false, fileError("write", path, err)
	}
	defer folder.Close()
	created, err = replaceFile(folder, filepath.Base(rel), data)
	if err != nil {
		return false, fileError("write", path, err)
	}
	return created, nil
}

// openWorkspace opens dir and returns path as seen from it.
func openWorkspace(dir, path string) (*os.Root, string, error) {
	rel := path
	if filepath.IsAbs(path) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, "", errNotWithin
		}
		for _, base := range []string{dir, real} {
			if rel, err = filepath.Rel(base, path); err == nil && filepath.IsLocal(rel) {
				break
			}
		}
	}
	if dir == "" || !filepath.IsLocal(rel) {
		return nil, "", errNotWithin
	}
	root, err := os.OpenRoot(dir)
	return root, filepath.Clean(rel), err
}

// names returns the parts of a path.
func names(rel string) []string { return strings.Split(rel, string(filepath.Separator)) }

// openFolder opens the folder rel of root, which it closes, and makes what is missing. It
// follows no link and enters no repository's own folder.
func openFolder(root *os.Root, rel string) (*os.Root, error) {
	folder := root
	for _, name := range append([]string{"."}, names(rel)...) {
		next, err := enter(folder, name)
		folder.Close()
		if err != nil {
			return nil, err
		}
		folder = next
	}
	return folder, nil
}

func enter(folder *os.Root, name string) (*os.Root, error) {
	if err := folder.Mkdir(name, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	was, err := folder.Lstat(name)
	if err != nil {
		return nil, err
	}
	if was.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is a link, and no link is followed to write", name)
	}
	next, err := folder.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	is, err := next.Stat(".")
	switch {
	case err != nil:
	case !os.SameFile(was, is):
		err = fmt.Errorf("%s was replaced meanwhile", name)
	case gitFolder(next):
		err = errGit
	default:
		return next, nil
	}
	next.Close()
	return nil, err
}

var errGit = errors.New("it belongs to git, whose files are not written for a program")

// gitName reports whether git, on any file system, takes a name for that of its folder.
func gitName(name string) bool {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) { // HFS+ ignores them
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	name, _, _ = strings.Cut(name, ":") // a stream of NTFS
	name = strings.TrimRight(name, ". ")
	return name == ".git" || name == "git~1"
}

// gitFolder reports whether a folder is a repository's own by what is in it, whatever its
// name: a bare one, one of a submodule, or one that was renamed.
func gitFolder(folder *os.Root) bool {
	if _, err := folder.Lstat("HEAD"); err != nil {
		return false
	}
	for _, name := range []string{"objects", "commondir"} { // the latter of a worktree
		if _, err := folder.Lstat(name); err == nil {
			return true
		}
	}
	return false
}

// replaceFile puts a new file with data in the place of name.
func replaceFile(folder *os.Root, name string, data []byte) (created bool, err error) {
	mode := fs.FileMode(0o666)
	old, err := folder.Lstat(name)
	switch created = errors.Is(err, fs.ErrNotExist); {
	case created:
	case err == nil && old.Mode()&fs.ModeSymlink != 0:
		return false, errors.New("it is a link, and no link is followed to write")
	default:
		if err := regular(old, err); err != nil {
			return false, err
		}
		mode = old.Mode().Perm()
	}
	temp := ".agentsched-" + rand.Text()
	f, err := folder.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return false, err
	}
	_, err = f.Write(data)
	if err == nil && !created {
		err = f.Chmod(mode) // whatever the umask
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = folder.Rename(temp, name)
	}
	if err != nil {
		return false, errors.Join(err, folder.Remove(temp))
	}
	return created, nil
}

// regular returns why a file that Stat or Lstat has found is not to be read or written.
func regular(info fs.FileInfo, err error) error {
	if err == nil && !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	return err
}

// fileError says what could not be done with what path, and why, without the paths of the
// attempts that were made for it.
func fileError(verb, path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	if len(path) > 1000 {
		path = path[:1000] + "…"
	}
	return fmt.Errorf("%s %q: %w", verb, path, err)
}
