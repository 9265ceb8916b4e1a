package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// change is a file to be written or removed.
type change struct {
	name   string
	remove bool
	chmod  bool // the executable bit changes
}

// write brings the difference of two trees into the folder. Each file is
// replaced at once; if one fails, those before it are put back.
func (g *merge) write(ctx context.Context, names []string, ours, result string) error {
	words, err := g.list(ctx, "diff-tree", "-r", "-z", "--no-renames", "--raw", ours, result)
	if err != nil {
		return err
	}
	var removals, writes []change
	var files []string
	for i := 0; i+1 < len(words); i += 2 {
		f := strings.Fields(words[i]) // :100644 100755 old new M
		c := change{name: words[i+1], remove: f[4] == "D", chmod: f[0][1:] != f[1]}
		if f[1] == "160000" {
			return &ConflictError{Root: g.root, Files: []string{c.name}, Detail: "it is a submodule"}
		}
		if c.remove {
			removals = append(removals, c)
		} else {
			writes, files = append(writes, c), append(files, c.name)
		}
	}
	stage := filepath.Join(g.scratch, "stage") + "/"
	if err := g.feed(ctx, files, "checkout-index", "-f", "-z", "--stdin", "--prefix="+stage); err != nil {
		return fmt.Errorf("write the merged files: %w", err)
	}
	t := &transaction{root: g.root, stage: stage, backup: filepath.Join(g.scratch, "backup")}
	if err := os.Mkdir(t.backup, 0o700); err != nil {
		return err
	}
	// The user's editor takes no lock of ours: look once more.
	again := merge{git: g.with("GIT_INDEX_FILE=" + filepath.Join(g.scratch, "again")), root: g.root}
	if now, err := again.load(ctx, names); err != nil || now != ours {
		return errors.Join(fmt.Errorf("%s was changed while the patch was merged; try again", g.root), err)
	}
	// What is renamed must exist under one name at least, should we be killed:
	// removals come last, but for those that make room.
	var room, last []change
	for _, r := range removals {
		if slices.ContainsFunc(writes, func(w change) bool { return inside(w.name, r.name) || inside(r.name, w.name) }) {
			room = append(room, r)
		} else {
			last = append(last, r)
		}
	}
	for _, c := range slices.Concat(room, writes, last) {
		err := context.Cause(ctx)
		if err == nil {
			err = t.do(ctx, c)
		}
		if err != nil {
			return errors.Join(err, t.rollback())
		}
	}
	return nil
}

// transaction changes files of a folder and can put them back.
type transaction struct {
	root, stage, backup string
	undo                []func() error
}

func (t *transaction) do(ctx context.Context, c change) error {
	path := filepath.Join(t.root, c.name)
	old, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !isNotDir(err) {
		return err
	}
	exists := err == nil
	conflict := func(why string) error {
		return &ConflictError{Root: t.root, Files: []string{c.name}, Detail: why}
	}
	if exists && old.IsDir() {
		// Removals have emptied it, or something of the user's is in it.
		if os.Remove(path) != nil {
			return conflict("there is a folder of this name")
		}
		perm := old.Mode().Perm()
		t.undo = append(t.undo, func() error { return os.MkdirAll(path, perm) })
		exists = false
	}
	if exists {
		saved := filepath.Join(t.backup, strconv.Itoa(len(t.undo)))
		if err := clone(ctx, path, saved, old); err != nil {
			return fmt.Errorf("back up %s: %w", path, err)
		}
		t.undo = append(t.undo, func() error { return replace(context.WithoutCancel(ctx), saved, path, old) })
	}
	if c.remove {
		if err := os.Remove(path); err != nil {
			return err
		}
		t.removeEmpty(filepath.Dir(path))
		return nil
	}
	if err := t.makeParents(filepath.Dir(c.name)); err != nil {
		return conflict(err.Error())
	}
	if !exists {
		t.undo = append(t.undo, func() error {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
	}
	info, err := os.Lstat(t.stage + c.name)
	if err != nil {
		return err
	}
	like := info
	if exists && !c.chmod {
		like = old // the user's permissions, e.g. 0600
	}
	return replaceAs(ctx, t.stage+c.name, path, info, like.Mode().Perm())
}

// makeParents makes the folder rel, and goes through no symbolic link.
func (t *transaction) makeParents(rel string) error {
	at := t.root
	for _, part := range strings.Split(rel, "/") {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := os.Mkdir(at, 0o777); err != nil {
				return err
			}
			made := at
			t.undo = append(t.undo, func() error { return os.Remove(made) })
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a folder", at)
		}
	}
	return nil
}

// removeEmpty removes folders that a removal emptied, as git does.
func (t *transaction) removeEmpty(dir string) {
	for ; dir != t.root && inside(dir, t.root); dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err != nil || os.Remove(dir) != nil {
			return
		}
		perm, gone := info.Mode().Perm(), dir
		t.undo = append(t.undo, func() error { return os.MkdirAll(gone, perm) })
	}
}

func (t *transaction) rollback() error {
	var errs []error
	for i := len(t.undo) - 1; i >= 0; i-- {
		if err := t.undo[i](); err != nil {
			errs = append(errs, fmt.Errorf("restore the files: %w", err))
		}
	}
	return errors.Join(errs...)
}

func isNotDir(err error) bool {
	return errors.Is(err, unix.ENOTDIR)
}

// clone copies a file or symbolic link with its permissions and times.
func clone(ctx context.Context, from, to string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		return copyLink(from, to)
	}
	return (&copier{ctx: ctx}).file(from, to)
}

func replace(ctx context.Context, from, to string, info fs.FileInfo) error {
	temp, err := temporary(ctx, from, to, info)
	if err != nil {
		return err
	}
	return os.Rename(temp, to)
}

func replaceAs(ctx context.Context, from, to string, info fs.FileInfo, perm fs.FileMode) error {
	temp, err := temporary(ctx, from, to, info)
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		err = os.Chmod(temp, perm)
	}
	if err == nil {
		err = os.Rename(temp, to)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

// temporary copies from to a new name beside to, on the same file system.
func temporary(ctx context.Context, from, to string, info fs.FileInfo) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(to), ".agentsched-*")
	if err != nil {
		return "", err
	}
	f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return "", err
	}
	if err := clone(ctx, from, f.Name(), info); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
