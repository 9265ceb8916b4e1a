package travel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Checkout is a folder like the submitter's.
type Checkout struct {
	Top string // of its working tree
	Dir string // where a job begins: the submitter's folder
}

// Checkout makes the folder path, which must not exist or be empty, like the
// submitter's was: HEAD is the base, detached, and what was not committed is in the files. It
// borrows the objects of the mirror, which keeps them until Release.
func (m *Mirror) Checkout(ctx context.Context, p Start, path string) (*Checkout, error) {
	c, err := m.checkout(ctx, &p, path)
	if err != nil {
		return nil, fmt.Errorf("check out commit %.12s to %s: %w", p.Commit, path, err)
	}
	return c, nil
}

func (m *Mirror) checkout(ctx context.Context, p *Start, path string) (_ *Checkout, err error) {
	if err := p.validate(m.format); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(path) || strings.Contains(path, "\n") {
		return nil, errors.New("the folder is not an absolute path of one line")
	}
	if err := os.Mkdir(path, 0o700); errors.Is(err, fs.ErrExist) {
		if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
			return nil, errors.Join(errors.New("the folder is not empty"), err)
		}
	} else if err != nil {
		return nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	if err := m.reserve(ctx, p, path); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		// The folder stays, as it was: empty.
		entries, _ := os.ReadDir(path)
		for _, e := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, e.Name())))
		}
		err = errors.Join(err, m.Release(context.WithoutCancel(ctx), path))
	}()
	tree, err := m.git().read(ctx, p.Commit, m.Limits.orDefaults(), ignoresCase(path))
	if err != nil {
		return nil, of("commit "+p.Commit, "", err)
	}
	if a, b, ok := collision(tree.paths); ok {
		return nil, fmt.Errorf("its files %q and %q are one file on this file system, which ignores case", a, b)
	}
	git, err := m.makeGit(ctx, p, path)
	if err != nil {
		return nil, err
	}
	if err := git.run(ctx, nil, nil, "read-tree", "--reset", "-u", p.Commit); err != nil {
		return nil, err
	}
	if err := git.uncommit(ctx, p); err != nil {
		return nil, err
	}
	c := &Checkout{Top: path, Dir: filepath.Join(path, filepath.FromSlash(p.Sub))}
	return c, c.enter(p.Sub)
}

// enter makes the folder where the job begins: of one that is empty nothing travels.
func (c *Checkout) enter(sub string) error {
	if sub == "" {
		return nil
	}
	root, err := os.OpenRoot(c.Top)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.FromSlash(sub), 0o755); err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(c.Dir); err != nil || real != c.Dir {
		return fmt.Errorf("the folder %q is behind a symbolic link", sub)
	}
	return nil
}

// checkoutName is the name of a checkout in the mirror.
func checkoutName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:16])
}

// Hold has the mirror keep what a workspace needs that begins with a start, as long as
// the folder path exists or until Release. The error wraps ErrMissing if it has not
// taken that.
func (m *Mirror) Hold(ctx context.Context, p Start, path string) error {
	err := p.validate(m.format)
	if err == nil {
		err = m.reserve(ctx, &p, path)
	}
	if err != nil {
		return fmt.Errorf("hold commit %.12s for %s: %w", p.Commit, path, err)
	}
	return nil
}

// reserve lets the mirror keep what the checkout at path will need.
func (m *Mirror) reserve(ctx context.Context, p *Start, path string) error {
	held, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer held.release()
	git := m.git().under(held)
	if _, err := os.Stat(filepath.Join(m.dir, "kept", p.Commit)); err != nil {
		return ErrMissing
	}
	if err := git.descends(ctx, p.Commit, p.Base); err != nil {
		return err
	}
	if err := m.keep(ctx, held, p.Commit, p.Base); err != nil {
		return err
	}
	name := checkoutName(path)
	// The file first: a file without a ref is only untidy.
	if err := os.WriteFile(filepath.Join(m.dir, "checkouts", name), []byte(p.Commit+" "+path+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.Chtimes(filepath.Join(m.dir, "checkouts", name), m.now(), m.now()); err != nil {
		return err
	}
	return git.run(ctx, nil, nil, "update-ref", "refs/checkouts/"+name, p.Commit)
}

// Release says that the checkout at path is not needed any more. Its folder is the
// caller's to remove. It may be repeated.
func (m *Mirror) Release(ctx context.Context, path string) error {
	held, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer held.release()
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(real, filepath.Base(path))
	}
	return m.release(ctx, held, checkoutName(path))
}

func (m *Mirror) release(ctx context.Context, held lock, name string) error {
	if err := m.git().under(held).run(ctx, nil, nil, "update-ref", "-d", "refs/checkouts/"+name); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(m.dir, "checkouts", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// makeGit makes the git directory of a checkout, and returns it.
func (m *Mirror) makeGit(ctx context.Context, p *Start, path string) (repository, error) {
	dir := filepath.Join(path, ".git")
	git := m.git().with("GIT_DIR="+dir, "GIT_WORK_TREE="+path)
	git.dir, git.write = path, []string{path, m.dir}
	if err := git.run(ctx, nil, nil, "init", "--quiet", "--template=", "--initial-branch=main", "--object-format="+m.format); err != nil {
		return git, err
	}
	for name, value := range p.Convert {
		if err := git.run(ctx, nil, nil, "config", name, value); err != nil {
			return git, err
		}
	}
	files := map[string]string{"objects/info/alternates": filepath.Join(m.dir, "objects") + "\n", "HEAD": p.Base + "\n"}
	if p.Base == "" {
		delete(files, "HEAD")
	}
	if shallow, err := os.ReadFile(filepath.Join(m.dir, "shallow")); err == nil {
		files["shallow"] = string(shallow)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o600); err != nil {
			return git, err
		}
	}
	return git, nil
}

// uncommit makes the index that of the base, so that what the commit has beyond is not
// committed. New files that .gitignore excludes are staged: the submitter has
// forced that, and they would not be seen else.
func (r repository) uncommit(ctx context.Context, p *Start) error {
	switch {
	case p.Base == p.Commit:
		return nil
	case p.Base == "":
		if err := r.run(ctx, nil, nil, "read-tree", "--empty"); err != nil {
			return err
		}
	default: // it keeps what the index knows of files that are the same
		if err := r.run(ctx, nil, nil, "read-tree", "-m", p.Base); err != nil {
			return err
		}
	}
	var added, ignored bytes.Buffer
	if err := r.run(ctx, nil, &added, "ls-files", "-z", "--others", "--ignored", "--exclude-standard"); err != nil {
		return err
	}
	if added.Len() == 0 {
		return nil
	}
	for path := range strings.SplitSeq(strings.TrimSuffix(added.String(), "\x00"), "\x00") {
		if !strings.HasSuffix(path, "/") {
			ignored.WriteString(path + "\x00")
		}
	}
	return r.run(ctx, &ignored, nil, "update-index", "-z", "--add", "--stdin")
}

// ignoresCase reports whether a new folder is on a file system to which "a" and "A"
// are one name.
func ignoresCase(dir string) bool {
	f, err := os.CreateTemp(dir, ".case-a-")
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	f.Close()
	_, err = os.Lstat(filepath.Join(dir, strings.ToUpper(filepath.Base(f.Name()))))
	return err == nil
}

// collision returns two paths, or folders on the way to them, that differ in case
// alone.
func collision(paths []string) (a, b string, found bool) {
	seen := map[string]string{}
	for _, p := range paths {
		for at := p; at != "." && at != ""; at = parent(at) {
			lower := strings.ToLower(at)
			if was, ok := seen[lower]; ok {
				if was != at {
					return was, at, true
				}
				break
			}
			seen[lower] = at
		}
	}
	return "", "", false
}

func parent(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return ""
	}
	return path[:i]
}
