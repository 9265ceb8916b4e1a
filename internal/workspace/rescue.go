package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// UncollectedName is the name of the patch file with what an attempt changed that
// was never collected.
const UncollectedName = "uncollected.patch"

// rescue keeps what is in a workspace that is about to be made anew and was not
// collected: its attempt ended with its core, or files were changed there since. It
// becomes a patch in the folder dir. What no patch can hold stays where it was,
// under another name. The notes tell the user of it.
func (m *Manager) rescue(ctx context.Context, rec *record, dir string, held heldLocks) (notes []string, err error) {
	if !rec.Ready || rec.Spec.Isolation == job.Direct || dir == "" || !isDir(m.tree(rec)) {
		return nil, nil
	}
	n, err := m.now(ctx, rec, held)
	if err != nil || n == nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return m.setAside(rec, err)
	}
	defer n.close()
	if n.tree != rec.StartTree && !rec.Saved.has(n.tree) {
		path, size, _, err := n.writePatch(ctx, dir, UncollectedName)
		if err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			return m.setAside(rec, err)
		}
		notes = append(notes, fmt.Sprintf("an earlier attempt ended before its work was collected; it is kept in %s (%d bytes)", path, size))
	}
	lost := n.notes
	if n.complete || rec.Saved.has(n.tree) {
		lost = nil
	}
	if rec.Spec.Isolation == job.Worktree && rec.Admin == "" && isDir(rec.Repo.Common) {
		left, err := m.leftovers(ctx, rec, rec.Branch, held) // its own branch holds no more than the patch
		if err != nil {
			return notes, err
		}
		lost = append(lost, left...)
	}
	if len(lost) == 0 {
		return notes, nil
	}
	more, err := m.setAside(rec, errors.New(strings.Join(lost, "; ")))
	return append(notes, more...), err
}

// has reports whether what a workspace holds was collected, as a whole, and is
// still there.
func (s *saved) has(tree string) bool {
	if s == nil || s.Tree != tree || !s.Complete {
		return false
	}
	return s.Patch == "" || checkPatch(s) == nil
}

// setAside moves a workspace away of which no patch holds everything; why says so.
func (m *Manager) setAside(rec *record, why error) ([]string, error) {
	if why == nil {
		why = errors.New("there is nothing to compare it with")
	}
	for i := 1; ; i++ {
		to := filepath.Join(m.home(rec.Job), fmt.Sprintf("kept-%d-%s", i, rec.Folder))
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := os.Rename(m.tree(rec), to); err != nil {
			return nil, fmt.Errorf("keep the work of an earlier attempt: %w", err)
		}
		return []string{fmt.Sprintf("the work of an earlier attempt is kept in the folder %s, since a patch would not hold all of it: %v", to, why)}, nil
	}
}
