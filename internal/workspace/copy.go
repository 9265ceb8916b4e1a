package workspace

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// copier copies a folder: symbolic links stay links, permissions and times are
// kept, sockets, pipes and devices are left out. Hard links become files of
// their own, owners and extended attributes are not copied.
type copier struct {
	m     *Manager
	ctx   context.Context
	from  string // root of what is copied
	notes []string
}

func (c *copier) dir(from, to string) error {
	if err := c.ctx.Err(); err != nil {
		return context.Cause(c.ctx)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if c.skip(src, e) {
			continue
		}
		switch {
		case e.IsDir():
			err = c.dir(src, dst)
		case e.Type()&fs.ModeSymlink != 0:
			err = copyLink(src, dst)
		case e.Type().IsRegular():
			err = c.file(src, dst)
		}
		if err != nil {
			return err
		}
	}
	if err := os.Chmod(to, info.Mode().Perm()|0o700); err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// skip leaves out the scheduler's own folders and what would tie the copy to
// the user's repository: a .git file that leads out of the folder (git in the
// copy would move the user's branch), the list of the user's other worktrees
// (git in the copy could delete them), and the lock of a git that runs just now.
func (c *copier) skip(path string, e fs.DirEntry) bool {
	if e.IsDir() {
		inGit := filepath.Base(filepath.Dir(path)) == ".git"
		return c.m.excluded(path) || inGit && e.Name() == "worktrees"
	}
	if e.Name() == "index.lock" && filepath.Base(filepath.Dir(path)) == ".git" {
		return true
	}
	if e.Name() != ".git" || !e.Type().IsRegular() {
		return false
	}
	text, err := readSmall(path)
	if err != nil {
		return false
	}
	target, ok := strings.CutPrefix(strings.TrimSpace(text), "gitdir: ")
	if !ok {
		return false
	}
	if !filepath.IsAbs(target) && inside(filepath.Join(filepath.Dir(path), target), c.from) {
		return false
	}
	rel, _ := filepath.Rel(c.from, filepath.Dir(path))
	c.notes = append(c.notes, fmt.Sprintf("%s of the copy is not a git repository: the git folder of the original lies outside of it", rel))
	return true
}

func (c *copier) file(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = copyContent(c.ctx, out, in, info.Size())
	if err == nil {
		err = out.Chmod(info.Mode().Perm())
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// copyRange copies up to n bytes in pieces, so that a cancelled context is
// noticed within a large file.
func copyRange(ctx context.Context, out, in *os.File, n int64) error {
	const piece = 32 << 20
	for n > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done, err := io.CopyN(out, in, min(n, piece))
		n -= done
		if err == io.EOF { // it has become shorter meanwhile
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, to)
}

// pause waits for d or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
