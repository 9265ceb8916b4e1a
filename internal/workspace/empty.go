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

// The workspace of isolation none begins as an empty folder: there is nothing
// to take a snapshot of, and nothing to remember that its name does not tell.
// So it gets a record, and a git directory to compare with, only when it is
// found to hold something. Most such jobs leave nothing in it, and then their
// workspace costs two folders instead of a dozen runs of git.

// emptyTree is the id of a tree without entries (git hash-object -t tree /dev/null).
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// plainEmpty is the spec of a workspace that needs no record.
var plainEmpty = job.Workspace{Isolation: job.NoWorkspace}

// prepareFirstEmpty makes the empty folder of a job that has had no workspace. That takes no
// lock: nothing is there that others could see half made. It returns nil where anything
// stands in the way, and leaves no more than an empty home then.
func (m *Manager) prepareFirstEmpty(ctx context.Context, req Request) *Workspace {
	if req.Spec != plainEmpty || len(req.Patches) > 0 || checkID(req.Job) != nil || job.ValidPartName(req.Name) != nil || ctx.Err() != nil {
		return nil
	}
	rec := &record{Job: req.Job, Name: req.Name, Spec: req.Spec, Folder: folderName(req.Job, req.Name), StartTree: emptyTree, unrecorded: true}
	if os.Mkdir(m.home(req.Job), 0o700) != nil || os.Mkdir(m.tree(rec), 0o700) != nil {
		return nil
	}
	ws := m.workspace(rec)
	ws.First = true
	return ws
}

// makeEmpty makes the folder. That there is one, and no record, says that the
// workspace is ready.
func (m *Manager) makeEmpty(ctx context.Context, rec *record) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rec.StartTree = emptyTree
	if !rec.unrecorded {
		if err := m.writeRecord(rec); err != nil {
			return err
		}
		if err := removeAll(m.basePath(rec)); err != nil { // of an earlier attempt
			return err
		}
		if err := os.Remove(m.startIndex(rec)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return makeDir(m.tree(rec))
}

// makeDir is os.MkdirAll for a folder whose parent is most likely there.
func makeDir(path string) error {
	if os.Mkdir(path, 0o700) == nil {
		return nil
	}
	return os.MkdirAll(path, 0o700)
}

// unrecordedEmpty returns what a record would say of the workspace that
// makeEmpty left without one, or fs.ErrNotExist.
func (m *Manager) unrecordedEmpty(id job.ID) (*record, error) {
	entries, err := os.ReadDir(m.home(id))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), folderName(id, "")); ok && e.IsDir() {
			return &record{
				Job: id, Name: job.Name(name), Spec: plainEmpty, Ready: true,
				Folder: e.Name(), StartTree: emptyTree, unrecorded: true,
			}, nil
		}
	}
	return nil, fs.ErrNotExist
}

// stillEmpty reports whether a workspace that began empty holds nothing, not
// even an empty folder.
func (m *Manager) stillEmpty(rec *record) (bool, error) {
	if rec.Spec.Isolation != job.NoWorkspace || rec.StartTree != emptyTree {
		return false, nil
	}
	entries, err := os.ReadDir(m.tree(rec))
	return err == nil && len(entries) == 0, err
}

// leftNothing reports whether nothing was ever found in a workspace that began
// without a record, and nothing is there now. That needs no lock: what others
// are about to find, they remember after this.
func (m *Manager) leftNothing(ws *Workspace) bool {
	if !ws.unrecorded {
		return false
	}
	if entries, err := os.ReadDir(ws.Root); err != nil || len(entries) > 0 {
		return false
	}
	_, err := os.Lstat(m.recordPath(ws.Job))
	return errors.Is(err, fs.ErrNotExist)
}

// ensureBase makes the git directory of a workspace that began without one.
func (m *Manager) ensureBase(ctx context.Context, rec *record, held heldLocks) error {
	base := m.basePath(rec)
	if rec.Spec.Isolation != job.NoWorkspace {
		return nil
	}
	// It is the last file that makeBase writes.
	if _, err := os.Stat(filepath.Join(base, "info", "exclude")); err == nil {
		return nil
	}
	if _, err := m.makeBase(ctx, base, m.tree(rec), nil, held); err != nil {
		return fmt.Errorf("make a git folder to compare with: %w", err)
	}
	return nil
}
