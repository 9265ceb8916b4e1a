package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/agentsched/agentsched/job"
)

// A folder that is no repository is compared only up to these bounds, since a
// snapshot reads every file and keeps it compressed. Beyond them a job works,
// but nothing can be said about what it changed.
const (
	MaxSnapshotFiles = 50_000
	MaxSnapshotBytes = 1 << 30
)

// makeDirect remembers what the user's folder holds.
func (m *Manager) makeDirect(ctx context.Context, rec *record, held heldLocks) error {
	if err := checkFolder(rec.Spec.Path); err != nil {
		return err
	}
	rec.DirectTree, rec.StartTree = realOrSame(rec.Spec.Path), ""
	r, err := m.findRepo(ctx, rec.Spec.Path)
	if err != nil {
		return err
	}
	index := ""
	if r != nil && r.Top != "" {
		top := realOrSame(r.Top)
		rel, err := filepath.Rel(top, rec.DirectTree)
		if err != nil {
			return err
		}
		g := git{m: m, dir: top, held: held}
		if rel == "." {
			rec.DirectTree, rec.Repo = top, r
		} else {
			ignored, err := g.ignores(ctx, rel)
			if err != nil {
				return err
			}
			if !ignored { // else it is compared by itself
				rec.DirectTree, rec.Repo, rec.Scope = top, r, filepath.ToSlash(rel)
			}
		}
		if rec.Repo != nil {
			if index, err = plainIndex(ctx, g); err != nil {
				return err
			}
		}
	}
	if err := m.writeRecord(rec); err != nil {
		return err
	}
	return m.makeBounded(ctx, rec, rec.Repo, index, false, held)
}

// ignores reports whether .gitignore excludes the folder rel.
func (g git) ignores(ctx context.Context, rel string) (bool, error) {
	// check-ignore does not know literal pathspecs, but takes its paths so.
	_, err := g.with("GIT_LITERAL_PATHSPECS=0").out(ctx, "check-ignore", "--quiet", "--", "./"+rel)
	if failed := (*gitError)(nil); errors.As(err, &failed) && failed.code == 1 {
		return false, nil
	}
	return err == nil, err
}

// makeBounded is makeStart, but for folders that are too large to compare.
func (m *Manager) makeBounded(ctx context.Context, rec *record, r *repo, index string, stacked bool, held heldLocks) error {
	if r == nil {
		large, err := m.tooLarge(ctx, m.tree(rec))
		if err != nil {
			return err
		}
		if large {
			rec.Notes = append(rec.Notes, fmt.Sprintf("the folder has more than %d files or %d MiB and is not a git repository: what the job changes is not recorded", MaxSnapshotFiles, MaxSnapshotBytes>>20))
			return nil
		}
	}
	own, err := m.jobBase(ctx, rec, r, held)
	if err != nil {
		return err
	}
	return m.makeStart(ctx, rec, r, own, index, stacked, held)
}

// plainIndex returns the path of the index of g's repository, or "" when it
// has none or one that is split over two files and cannot be copied.
func plainIndex(ctx context.Context, g git) (string, error) {
	index, err := g.out(ctx, "rev-parse", "--path-format=absolute", "--git-path", "index")
	if err != nil {
		return "", err
	}
	if split, _ := filepath.Glob(filepath.Join(filepath.Dir(index), "sharedindex.*")); len(split) > 0 {
		return "", nil
	}
	return index, nil
}

func (m *Manager) tooLarge(ctx context.Context, root string) (bool, error) {
	files, bytes := 0, int64(0)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil: // unreadable: will not be in the snapshot either
			return nil
		case d.IsDir():
			if d.Name() == ".git" || m.excluded(path) {
				return fs.SkipDir
			}
			return nil
		}
		files++
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		if files > MaxSnapshotFiles || bytes > MaxSnapshotBytes {
			return errTooLarge
		}
		return nil
	})
	if errors.Is(err, errTooLarge) {
		return true, nil
	}
	return false, err
}

var errTooLarge = errors.New("too large")

// excluded reports whether path, with symbolic links resolved, is a folder of
// the scheduler's own.
func (m *Manager) excluded(path string) bool {
	for _, dir := range m.exclude {
		if path == dir {
			return true
		}
	}
	return false
}

// makeCopy copies the user's folder. It holds the folder's lock meanwhile, so
// that no job changes it; the user may.
func (m *Manager) makeCopy(ctx context.Context, rec *record, req Request, held heldLocks) error {
	if err := checkFolder(rec.Spec.Path); err != nil {
		return err
	}
	rec.StartTree = ""
	if err := m.writeRecord(rec); err != nil {
		return err
	}
	from := realOrSame(rec.Spec.Path)
	if err := removeAll(m.tree(rec)); err != nil {
		return err
	}
	lock, err := m.lockForCopy(ctx, from)
	if err != nil {
		return err
	}
	defer lock.Close()
	c := &copier{m: m, ctx: ctx, from: from}
	if err := c.dir(from, m.tree(rec)); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	lock.Close()
	rec.Notes = append(rec.Notes, c.notes...)
	r, err := m.findRepo(ctx, from)
	if err != nil {
		return err
	}
	index := ""
	if r != nil && r.Top != "" && realOrSame(r.Top) == from {
		if index, err = plainIndex(ctx, git{m: m, dir: from, held: held}); err != nil {
			return err
		}
	}
	rec.Repo = r
	if err := m.applyPatches(ctx, rec, req, held, func(job.Name, []string) error { return nil }); err != nil {
		return err
	}
	return m.makeBounded(ctx, rec, r, index, len(req.Patches) > 0, held)
}

// maxUnnamed is how often a lock is looked at again whose holder is not known: it
// has just taken it and not said who it is, or just let go of it.
const maxUnnamed = 200

// lockForCopy waits for other copies, which are short, but for no job.
func (m *Manager) lockForCopy(ctx context.Context, path string) (*Lock, error) {
	for unnamed := 0; ; {
		l, err := m.lockPath(path, string(job.Copy))
		busy := (*BusyError)(nil)
		if err == nil || !errors.As(err, &busy) {
			return l, err
		}
		switch busy.use {
		case string(job.Copy), useApply:
		case "":
			if unnamed++; unnamed > maxUnnamed {
				return nil, err
			}
		default:
			return nil, err
		}
		if err := pause(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
}
