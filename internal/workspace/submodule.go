package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// submodules returns the path of each submodule in the index of g with the
// tree of what its folder holds now: "" when it holds nothing or is missing.
func (g git) submodules(ctx context.Context) (map[string]string, error) {
	entries, err := g.list(ctx, "ls-files", "-s", "-z")
	if err != nil {
		return nil, err
	}
	var subs map[string]string
	for _, e := range entries {
		if !strings.HasPrefix(e, "160000 ") {
			continue
		}
		_, path, _ := strings.Cut(e, "\t")
		if subs == nil {
			subs = make(map[string]string)
		}
		if subs[path], err = g.submoduleState(ctx, path); err != nil {
			return nil, err
		}
	}
	return subs, nil
}

func (g git) submoduleState(ctx context.Context, path string) (string, error) {
	if !g.isFolder(path) {
		return "", nil
	}
	entries, err := os.ReadDir(filepath.Join(g.dir, path))
	if err != nil || len(entries) == 0 {
		return "", nil
	}
	sub := g.at(path).emptyIndex()
	defer os.Remove(sub.index())
	var notes []string
	tree, _, err := sub.snapshot(ctx, "", &notes)
	return tree, err
}

// isFolder reports whether path is a folder of the working tree of g. One behind a
// symbolic link is not: the agent may have put the link there, and what it leads to
// can be anything of the user's.
func (g git) isFolder(path string) bool {
	root, err := os.OpenRoot(g.dir)
	if err != nil {
		return false
	}
	defer root.Close()
	info, err := root.Lstat(path)
	return err == nil && info.IsDir() && !behindLink(root, path)
}

// changedSubmodules says which submodules hold something else than at the
// start, unless that is just what their recorded commit holds: an agent may
// have checked them out in order to build. Their content cannot be part of a
// patch of the repository around them. One whose folder was removed is
// removed from the index of g.
func (g git) changedSubmodules(ctx context.Context, start map[string]string) (changed []string, err error) {
	for path, was := range start {
		if _, err := os.Lstat(filepath.Join(g.dir, path)); os.IsNotExist(err) {
			if err := g.feed(ctx, []string{path}, "update-index", "-z", "--force-remove", "--stdin"); err != nil {
				return nil, err
			}
			continue
		}
		now, err := g.submoduleState(ctx, path)
		if err != nil {
			return nil, err
		}
		if g.isFolder(path) && (now == was || g.isCheckedOut(ctx, path, now)) {
			continue
		}
		changed = append(changed, fmt.Sprintf("submodule %s was changed; its changes are not part of the patch", path))
	}
	sort.Strings(changed)
	return changed, nil
}

// isCheckedOut reports whether the submodule at path is at the commit that the
// index of g names and holds exactly that commit's tree. No git runs in the
// submodule, whose configuration the agent may have written: its HEAD is read
// here, its objects are lent to g.
func (g git) isCheckedOut(ctx context.Context, path, tree string) bool {
	entry, err := g.out(ctx, "ls-files", "-s", "-z", "--", path)
	if err != nil {
		return false
	}
	fields := strings.Fields(entry)
	dir, err := gitFolder(filepath.Join(g.dir, path))
	if err != nil || len(fields) < 2 {
		return false
	}
	commit, err := readRef(dir, "HEAD")
	if err != nil || commit != fields[1] {
		return false
	}
	lent := g.with("GIT_ALTERNATE_OBJECT_DIRECTORIES=" + cQuote(filepath.Join(dir, "objects")))
	have, err := lent.out(ctx, "rev-parse", "--verify", "--quiet", commit+"^{tree}")
	return err == nil && have == tree
}

// gitFolder returns the git folder of the working tree top: .git, or what the
// file .git names.
func gitFolder(top string) (string, error) {
	dir := filepath.Join(top, ".git")
	if isDir(dir) {
		return dir, nil
	}
	text, err := readSmall(dir)
	if err != nil {
		return "", err
	}
	to, ok := strings.CutPrefix(strings.TrimSpace(text), "gitdir: ")
	if !ok {
		return "", fmt.Errorf("%s names no git folder", dir)
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(top, to)
	}
	return to, nil
}

// readRef returns the id that HEAD or another ref of a git folder names.
func readRef(dir, ref string) (string, error) {
	for range 5 { // symbolic refs, as git bounds them
		text, err := readSmall(filepath.Join(dir, filepath.FromSlash(ref)))
		if errors.Is(err, fs.ErrNotExist) {
			return packedRef(dir, ref)
		}
		if err != nil {
			return "", err
		}
		text = strings.TrimSpace(text)
		to, symbolic := strings.CutPrefix(text, "ref: ")
		if !symbolic {
			return text, nil
		}
		if ref = to; !filepath.IsLocal(filepath.FromSlash(ref)) {
			break
		}
	}
	return "", fmt.Errorf("%s of %s cannot be read", ref, dir)
}

func packedRef(dir, ref string) (string, error) {
	text, err := readSmall(filepath.Join(dir, "packed-refs"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if id, name, _ := strings.Cut(strings.TrimSpace(line), " "); name == ref {
			return id, nil
		}
	}
	return "", fs.ErrNotExist
}

// readSmall reads a regular file of at most 16 MiB.
func readSmall(path string) (string, error) {
	const most = 16 << 20
	f, _, err := openBounded(path, most)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	return string(b), err
}

// openBounded opens a regular file of at most that many bytes. The agent may have
// put anything in its place: a pipe that never ends, a link to a device, or a
// sparse file larger than the memory.
func openBounded(path string, most int64) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > most) {
		err = fmt.Errorf("%s is not a file of at most %d bytes", path, most)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}
