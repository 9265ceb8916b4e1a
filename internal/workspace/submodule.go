package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
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
	dir := filepath.Join(g.dir, path)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return "", nil
	}
	sub := g.at(path).emptyIndex()
	defer os.Remove(sub.index())
	var notes []string
	tree, _, err := sub.snapshot(ctx, "", &notes)
	return tree, err
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
		if now == was || g.isCheckedOut(ctx, path, now) {
			continue
		}
		changed = append(changed, fmt.Sprintf("submodule %s was changed; its changes are not part of the patch", path))
	}
	sort.Strings(changed)
	return changed, nil
}

// isCheckedOut reports whether the submodule at path is at the commit that the
// index of g names and holds exactly that commit's tree. rev-parse runs no
// program that the submodule's configuration could name.
func (g git) isCheckedOut(ctx context.Context, path, tree string) bool {
	entry, err := g.out(ctx, "ls-files", "-s", "-z", "--", path)
	if err != nil {
		return false
	}
	fields := strings.Fields(entry)
	own := git{m: g.m, dir: filepath.Join(g.dir, path), held: g.held}
	have, err := own.out(ctx, "rev-parse", "--verify", "HEAD", "HEAD^{tree}")
	if err != nil {
		// Two objects at once are not for --verify in every version.
		have, err = own.out(ctx, "rev-parse", "HEAD", "HEAD^{tree}")
	}
	return err == nil && len(fields) > 1 && have == fields[1]+"\n"+tree
}
