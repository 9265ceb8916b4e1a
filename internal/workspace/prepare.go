package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

// Request asks for the workspace of one attempt.
type Request struct {
	Job  job.ID
	Name job.Name
	Spec job.Workspace
	// Origin finds what a worktree is made of that Spec names by Repo or Parcel. It is
	// called once the folder of the job's workspaces (Manager.Home) exists, and not for a
	// workspace that goes on or begins again.
	Origin func(ctx context.Context) (Origin, error)
	// Fresh asks for the state of the start again, whatever an earlier attempt
	// left. Without it that is kept, as a resumed session expects. The user's
	// own folder (direct) is never reset: there, Fresh compares from now on.
	Fresh bool
	// Patches of other jobs are applied, in this order, to a worktree or copy
	// that is made anew: they belong to its start, so what the job changes beyond
	// them is its own. One with the Path "" changes nothing. Other isolations
	// cannot have any.
	Patches []job.Patch
	// OnConflict says what follows if they do not fit: the error is a
	// *PatchesError, or with job.ResolveConflict the files hold conflict marks
	// and are Workspace.Clashes.
	OnConflict job.Conflict
	// Like is another job: a worktree of the same Spec that is made for the first time begins at the commit that its did, as far
	// as that is known. "" is none.
	Like job.ID
	// Uncollected is the folder that gets a patch (UncollectedName) of what an earlier
	// attempt left and that was not collected, before the workspace is made anew; ""
	// keeps none.
	Uncollected string
	// Title says in a line what the job is about, for the message of its commit; ""
	// leaves its name.
	Title string
}

// Origin is a repository of ours that a worktree is made of.
type Origin struct {
	Repository string // a bare repository, absolute
	Commit     string // a full id
	Sub        string // the job's folder below the top, slash separated; "" for the top
}

// Prepare makes the job's workspace, or returns the one that is there. It may
// be repeated, also after it was killed half-way. With isolation copy the error
// is a *BusyError while another job works in the user's folder itself.
//
// A fresh worktree is always made anew, at the commit of the first attempt:
// what an agent may have done to one (a rebase under way, skipped index
// entries, checked out submodules) is more than a reset undoes. The old one is
// left to DropReplaced.
func (m *Manager) Prepare(ctx context.Context, req Request) (*Workspace, error) {
	if ws := m.prepareFirstEmpty(ctx, req); ws != nil {
		return ws, nil
	}
	held, err := m.makeAndLockJob(ctx, req.Job)
	if err != nil {
		return nil, err
	}
	defer held.release()
	ws, err := m.prepare(ctx, req, held)
	if err != nil {
		return nil, fmt.Errorf("prepare the workspace of job %s: %w", req.Job, err)
	}
	return ws, nil
}

func (m *Manager) prepare(ctx context.Context, req Request, held heldLocks) (*Workspace, error) {
	if err := job.ValidPartName(req.Name); err != nil {
		return nil, fmt.Errorf("name of the job %w", err)
	}
	if err := req.checkPatches(); err != nil {
		return nil, err
	}
	if err := m.checkOutside(req.Spec); err != nil {
		return nil, err
	}
	var old *record
	if !held.isEmptyHome() {
		var err error
		if old, err = m.readRecord(req.Job); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if old != nil && old.Ready && !req.Fresh && old.Spec == req.Spec {
		ok, err := m.revive(ctx, old, held)
		if err != nil {
			return nil, err
		}
		if ok {
			return m.workspace(old), nil
		}
	}
	rec := &record{Job: req.Job, Name: req.Name, Spec: req.Spec, Title: req.Title}
	if req.Spec.Isolation != job.Direct {
		rec.Folder = folderName(req.Job, req.Name)
	}
	if old != nil && old.Spec == req.Spec {
		rec.StartCommit, rec.StartTree, rec.Repo, rec.Sub = old.StartCommit, old.StartTree, old.Repo, old.Sub
	}
	if old == nil && req.Like != "" && req.Spec.Isolation == job.Worktree {
		if like, err := m.readRecord(req.Like); err == nil && like.Spec == req.Spec && like.Repo != nil && isDir(like.Repo.Common) {
			rec.StartCommit, rec.Repo, rec.Sub = like.StartCommit, like.Repo, like.Sub
		}
	}
	var kept []string
	var err error
	if old != nil {
		if kept, err = m.rescue(ctx, old, req.Uncollected, held); err != nil {
			return nil, err
		}
		m.putAside(old)
		if err := m.discard(ctx, old, held); err != nil {
			return nil, err
		}
		if old.Spec.Isolation == job.Worktree && old.Repo != nil && isDir(old.Repo.Common) {
			if err := m.dropRefs(ctx, old, old.Spec != req.Spec, true, held); err != nil {
				return nil, err
			}
		}
	}
	if i := req.Spec.Isolation; i == job.Worktree || i == job.Copy {
		spread(m.home(req.Job))
	}
	switch req.Spec.Isolation {
	case job.Worktree:
		err = m.makeWorktree(ctx, rec, req, held)
	case job.Copy:
		err = m.makeCopy(ctx, rec, req, held)
	case job.Direct:
		err = m.makeDirect(ctx, rec, held)
	case job.NoWorkspace:
		rec.unrecorded = rec.Spec == plainEmpty && (old == nil || old.unrecorded)
		err = m.makeEmpty(ctx, rec)
	default:
		err = fmt.Errorf("isolation %q is unknown", req.Spec.Isolation)
	}
	if err != nil {
		return nil, err
	}
	rec.Ready = true
	if !rec.unrecorded {
		if err := m.writeRecord(rec); err != nil {
			return nil, err
		}
	}
	m.log.Debug().Str("job", string(rec.Job)).Str("isolation", string(req.Spec.Isolation)).Str("folder", m.tree(rec)).Msg("workspace made")
	ws := m.workspace(rec)
	ws.Notes = append(kept, ws.Notes...)
	return ws, nil
}

// checkPatches returns why the workspace cannot begin with patches.
func (r *Request) checkPatches() error {
	if len(r.Patches) == 0 {
		return nil
	}
	switch from := r.Patches[0].Job; r.Spec.Isolation {
	case job.Direct:
		return fmt.Errorf("the patch of job %s cannot be applied with isolation direct, since that would change the user's own files; use isolation worktree or copy", from)
	case job.NoWorkspace:
		return fmt.Errorf("the patch of job %s cannot be applied with isolation none, since the folder is empty; use isolation worktree or copy", from)
	}
	return nil
}

// revive reports whether a finished workspace can go on being used.
func (m *Manager) revive(ctx context.Context, rec *record, held heldLocks) (bool, error) {
	if !isDir(m.tree(rec)) {
		if rec.Spec.Isolation == job.Direct {
			return false, checkFolder(rec.Spec.Path)
		}
		return false, nil
	}
	if rec.Spec.Isolation != job.Worktree {
		return true, nil
	}
	return m.reviveWorktree(ctx, rec, held)
}

// putAside moves the folder of an old workspace out of the way, for DropReplaced:
// to remove its files takes long, and on some file systems makes it slow to make
// others. What cannot be moved is left to discard.
func (m *Manager) putAside(rec *record) {
	if rec.Spec.Isolation != job.Worktree && rec.Spec.Isolation != job.Copy || !isDir(m.tree(rec)) {
		return
	}
	if to, err := os.MkdirTemp(m.home(rec.Job), asidePrefix); err == nil {
		_ = os.Rename(m.tree(rec), filepath.Join(to, rec.Folder))
	}
}

// asidePrefix begins the names of folders in a job's home that wait to be removed.
const asidePrefix = "discarded-"

// DropReplaced removes the folders that Prepare has replaced by the job's present
// one. It takes no lock, and can be called while the job works. What it has not
// removed when ctx ends, the next call does, or Remove.
func (m *Manager) DropReplaced(ctx context.Context, id job.ID) {
	entries, _ := os.ReadDir(m.home(id))
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), asidePrefix) {
			continue
		}
		if err := removeUntil(ctx, filepath.Join(m.home(id), e.Name())); err != nil && ctx.Err() == nil {
			m.log.Warn().Str("job", string(id)).Err(err).Msg("an old workspace was not removed")
		}
	}
}

// removeUntil is removeAll that stops soon after ctx ends.
func removeUntil(ctx context.Context, path string) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	empty(ctx, root, 3)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return removeAll(path)
}

// empty removes what it can of a folder. Below that many levels it removes whole
// folders without a look at ctx.
func empty(ctx context.Context, root *os.Root, levels int) {
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	entries, _ := dir.ReadDir(-1)
	dir.Close()
	for _, e := range entries {
		if ctx.Err() != nil {
			return
		}
		if levels > 0 && e.IsDir() {
			if sub, err := root.OpenRoot(e.Name()); err == nil {
				empty(ctx, sub, levels-1)
				sub.Close()
				if ctx.Err() != nil {
					return
				}
			}
		}
		_ = root.RemoveAll(e.Name())
	}
}

// discard removes what an earlier Prepare made, but for the user's own.
func (m *Manager) discard(ctx context.Context, rec *record, held heldLocks) error {
	// From here on nothing of it may be taken for a workspace.
	if rec.unrecorded {
		if err := removeAll(m.basePath(rec)); err != nil {
			return fmt.Errorf("remove the old workspace: %w", err)
		}
	} else if rec.Ready {
		rec.Ready = false
		if err := m.writeRecord(rec); err != nil {
			return err
		}
	}
	if rec.Spec.Isolation == job.Worktree && rec.Repo != nil && isDir(rec.Repo.Common) {
		if err := m.dropWorktree(ctx, rec, held); err != nil {
			return err
		}
	}
	if rec.Folder != "" {
		if err := removeAll(filepath.Join(m.home(rec.Job), rec.Folder)); err != nil {
			return fmt.Errorf("remove the old workspace: %w", err)
		}
	}
	return nil
}

// jobBase makes the private git directory of a job.
func (m *Manager) jobBase(ctx context.Context, rec *record, r *repo, held heldLocks) (*repoConfig, error) {
	own, err := m.makeBase(ctx, m.basePath(rec), m.tree(rec), r, held)
	if err != nil {
		return nil, fmt.Errorf("make a git folder to compare with: %w", err)
	}
	if r != nil {
		rec.Settings, rec.Reads = settings(r, own), reads(own, r)
		if rec.Spec.Isolation == job.Direct {
			rec.Stash = stashed(r)
		}
	}
	return own, nil
}

// makeStart takes the first snapshot. own is what the configuration of r says.
// index is a git index to begin with, which saves reading every file; "" is none.
// stacked says that patches of other jobs were applied.
func (m *Manager) makeStart(ctx context.Context, rec *record, r *repo, own *repoConfig, index string, stacked bool, held heldLocks) error {
	base, tree, start := m.basePath(rec), m.tree(rec), m.startIndex(rec)
	for _, stale := range []string{start, start + ".lock"} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if index != "" {
		if err := copyIndex(index, start); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy the index: %w", err)
		} else if err == nil && rec.Spec.Isolation != job.Worktree { // the index of a worktree is our own
			if err := unhide(start, tree, own.sparse(), rec.Repo.hash); err != nil {
				return fmt.Errorf("copy the index: %w", err)
			}
		}
	}
	g := m.baseGit(base, tree, start, held)
	if stacked { // what other agents have written is in it
		reads, err := m.readsOf(ctx, rec, held)
		if err != nil {
			return err
		}
		g = g.within(append([]string{tree}, reads...), append([]string{m.home(rec.Job)}, lfsStorage(r)...))
	}
	var missed []string
	var err error
	// The files that git has just written are as its index says.
	g.believed = rec.Spec.Isolation == job.Worktree && rec.Stacked == ""
	if rec.StartTree, missed, err = g.snapshot(ctx, rec.Scope, &rec.Notes); err != nil {
		return fmt.Errorf("take a snapshot of the start: %w", err)
	}
	notes, err := g.checkFilters(ctx, own, r, nil)
	if err != nil {
		return err
	}
	rec.Notes = append(rec.Notes, notes...)
	for _, f := range missed {
		rec.Notes = append(rec.Notes, "cannot be compared later: "+f)
	}
	if rec.Submodules, err = g.submodules(ctx); err != nil {
		return fmt.Errorf("look at submodules: %w", err)
	}
	if rec.Spec.Isolation == job.Worktree {
		// No agent was here yet: this is as good a time as that of its writing.
		if err := unix.Utimes(start, nil); err != nil {
			return fmt.Errorf("set the time of the index: %w", err)
		}
		for path := range rec.Submodules {
			rec.Notes = append(rec.Notes, fmt.Sprintf("submodule %s is not checked out; run `git submodule update --init` in the job if it is needed", path))
		}
	}
	return nil
}

// removeAll is os.RemoveAll that also removes what lies in read-only folders,
// such as Go's module cache.
func removeAll(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
			if err != nil { // it could not be read before
				return nil
			}
		}
		return nil
	})
	return os.RemoveAll(path)
}
