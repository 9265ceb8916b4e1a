package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// RemoveOptions says how Remove goes about it.
type RemoveOptions struct {
	Force bool // delete the work too
	// KeepUnapplied also refuses to remove a workspace whose patch was neither
	// applied nor merged, though the patch itself stays.
	KeepUnapplied bool
	// Unused, if not nil, returns an error that says who uses the workspace, which then stays. It is called while nobody
	// can prepare it.
	Unused func(ctx context.Context) error
	// Also are folders that go with the workspace, absolute.
	Also []string
}

// UnsavedError says that a workspace holds work that exists nowhere else or, with
// KeepUnapplied, that the user does not have.
type UnsavedError struct {
	Path   string // the workspace
	Reason string
	Patch  string // the patch that holds the work and was not applied, if that is the reason
}

func (e *UnsavedError) Error() string {
	return e.Path + " is kept: " + e.Reason
}

// Remove deletes the job's workspace and its branch. It refuses with an
// *UnsavedError unless the workspace is as at the start or its content is exactly
// what the last collected patch holds and that patch is still there, and if a
// worktree has commits or stash entries that the repository lacks.
// A branch with commits that neither another branch nor the patch holds is left
// in the repository. A workspace that does not exist is no error. The user's own
// folder (direct) is never deleted.
func (m *Manager) Remove(ctx context.Context, id job.ID, _ job.Workspace, opts RemoveOptions) error {
	held, err := m.lockJob(ctx, id)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer held.release()
	if err := m.InHands(id); err != nil {
		return &UnsavedError{Path: m.home(id), Reason: err.Error()}
	}
	err = nil
	if opts.Unused != nil {
		err = opts.Unused(ctx)
	}
	if err == nil && there {
		err = m.remove(ctx, id, opts, held)
	}
	for _, path := range opts.Also {
		if err == nil {
			err = removeAll(path)
		}
	}
	if err != nil {
		return fmt.Errorf("remove the workspace of job %s: %w", id, err)
	}
	return nil
}

func (m *Manager) remove(ctx context.Context, id job.ID, opts RemoveOptions, held heldLocks) error {
	rec, err := m.readRecord(id)
	if errors.Is(err, fs.ErrNotExist) || err != nil && opts.Force {
		return removeAll(m.home(id)) // the record is written before anything else
	}
	if err != nil {
		return err
	}
	dropBranch := opts.Force || !rec.Ready
	if rec.Ready && !opts.Force && rec.Spec.Isolation != job.Direct && isDir(m.tree(rec)) {
		if dropBranch, err = m.saved(ctx, rec, opts, held); err != nil {
			return err
		}
	}
	if err := m.discard(ctx, rec, held); err != nil {
		return err
	}
	if rec.Spec.Isolation == job.Worktree && rec.Repo != nil && isDir(rec.Repo.Common) {
		if err := m.dropRefs(ctx, rec, true, dropBranch, held); err != nil {
			return err
		}
	}
	return removeAll(m.home(id))
}

// saved returns an *UnsavedError, or whether the branch can go too.
func (m *Manager) saved(ctx context.Context, rec *record, opts RemoveOptions, held heldLocks) (branch bool, err error) {
	unsaved := func(format string, args ...any) error {
		return &UnsavedError{Path: m.tree(rec), Reason: fmt.Sprintf(format, args...)}
	}
	n, err := m.now(ctx, rec, held)
	if err != nil {
		return false, err
	}
	if n == nil {
		return false, unsaved("it was too large to record what the job changed")
	}
	defer n.close()
	s := rec.Saved
	switch {
	case !n.complete:
		return false, unsaved("%s", strings.Join(n.notes, "; "))
	case n.tree == rec.StartTree:
	case s == nil:
		return false, unsaved("its changes were never collected")
	case s.Tree != n.tree:
		return false, unsaved("it was changed after its changes were collected")
	case !s.Complete:
		return false, unsaved("the collected patch does not hold everything")
	default:
		if err := checkPatch(s); err != nil {
			return false, unsaved("%v", err)
		}
		if opts.KeepUnapplied {
			merged, err := m.merged(ctx, rec, n, held)
			switch {
			case ctx.Err() != nil:
				return false, context.Cause(ctx)
			case err != nil:
				return false, &UnsavedError{Path: m.tree(rec), Reason: fmt.Sprintf("its patch was not applied by `scheduler apply`, and the folder could not be compared with it: %v", err), Patch: s.Patch}
			case !merged:
				return false, &UnsavedError{Path: m.tree(rec), Reason: "its patch was neither applied nor merged", Patch: s.Patch}
			}
		}
	}
	if rec.Spec.Isolation != job.Worktree || !isDir(rec.Repo.Common) {
		return false, nil
	}
	g := rec.Repo.at(m, held)
	if rec.Admin == "" {
		left, err := m.leftovers(ctx, rec, "", held)
		if err != nil {
			return false, err
		}
		if len(left) > 0 {
			return false, unsaved("%s", strings.Join(left, "; "))
		}
	} else if head, err := readSmall(filepath.Join(rec.Admin, "HEAD")); err == nil && !strings.HasPrefix(head, "ref: ") {
		commit := strings.TrimSpace(head)
		if !m.elsewhere(ctx, g, rec, n, commit, "") {
			return false, unsaved("commit %s is on no branch", commit)
		}
	}
	if rec.Branch == "" {
		return false, nil
	}
	tip, _, err := g.branchAt(ctx, rec.Branch)
	if err != nil || tip == "" {
		return false, nil // it was removed, or is something else by now
	}
	if done := rec.Committed; done != nil && tip == done.ID {
		tip = cmp.Or(done.Old, rec.StartCommit) // the patch holds ours; it need not hold the agent's below it
	}
	return m.elsewhere(ctx, g, rec, n, tip, "refs/heads/"+rec.Branch), nil
}

// merged reports whether the user has what the collected patch holds: it was
// applied, the branch that holds the same was merged or pushed, or the user's
// folder holds it already.
func (m *Manager) merged(ctx context.Context, rec *record, n *present, held heldLocks) (bool, error) {
	if rec.Saved.Applied {
		return true, nil
	}
	if rec.Spec.Path == "" || !isDir(rec.Spec.Path) {
		return false, nil
	}
	if rec.Branch != "" && isDir(rec.Repo.Common) {
		tip := "refs/heads/" + rec.Branch
		g := rec.Repo.at(m, held)
		if tree, err := g.out(ctx, "rev-parse", "--verify", "--quiet", tip+"^{tree}"); err == nil && tree == n.tree {
			pushed, err := g.out(ctx, "for-each-ref", "--count=1", "--format=%(refname)", "--contains", tip, "refs/remotes/")
			if err == nil && pushed != "" {
				return true, nil
			}
			if _, err := (git{m: m, dir: rec.Spec.Path, held: held}).out(ctx, "merge-base", "--is-ancestor", tip, "HEAD"); err == nil {
				return true, nil
			}
		}
	}
	a, err := m.apply(ctx, job.Patch{Path: rec.Saved.Patch, SHA256: rec.Saved.SHA256}, rec.Spec.Path, true)
	if conflict := (*ConflictError)(nil); errors.As(err, &conflict) {
		return false, nil
	}
	return a.Already, err
}

// MarkApplied remembers for Remove that collected patches were applied. One whose
// workspace is gone needs no mark.
func (m *Manager) MarkApplied(ctx context.Context, patches ...string) error {
	made, err := m.madeBy(patches)
	if err != nil {
		return fmt.Errorf("remember what was applied: %w", err)
	}
	for _, rec := range made {
		if err := m.markApplied(ctx, rec.Job, patches); err != nil {
			return fmt.Errorf("remember that the patch of job %s was applied: %w", rec.Job, err)
		}
	}
	return nil
}

func (m *Manager) markApplied(ctx context.Context, id job.ID, patches []string) error {
	held, err := m.lockJob(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer held.release()
	rec, err := m.readRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// A later attempt may have collected another one since.
	if err != nil || rec.Saved == nil || rec.Saved.Applied || !slices.ContainsFunc(patches, func(p string) bool { return realOrSame(p) == rec.Saved.Patch }) {
		return err
	}
	rec.Saved.Applied = true
	return m.writeRecord(rec)
}

// StartCommit returns the commit that the job's worktree began with; "" if it has
// no worktree, or not any more.
func (m *Manager) StartCommit(id job.ID) string {
	rec, err := m.readRecord(id)
	if err != nil {
		return ""
	}
	return rec.StartCommit
}

// elsewhere reports whether what a commit holds survives without the ref but.
func (m *Manager) elsewhere(ctx context.Context, g git, rec *record, n *present, commit, but string) bool {
	if commit == rec.StartCommit || commit == rec.Stacked {
		return true
	}
	if tree, err := g.out(ctx, "rev-parse", "--verify", "--quiet", commit+"^{tree}"); err == nil && tree == n.tree {
		return true
	}
	refs, err := g.out(ctx, "for-each-ref", "--format=%(refname)", "--contains", commit)
	if err != nil {
		return false
	}
	for _, ref := range strings.Split(refs, "\n") {
		if ref != "" && ref != but {
			return true
		}
	}
	return false
}

func checkPatch(s *saved) error {
	err := statedir.CheckArtifact(job.Artifact{Path: s.Patch, SHA256: s.SHA256})
	changed := (*statedir.ChangedError)(nil)
	switch {
	case errors.As(err, &changed):
		return fmt.Errorf("the collected patch was changed: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the collected patch is gone: %w", err)
	case err != nil:
		return fmt.Errorf("the collected patch cannot be read: %w", err)
	}
	return nil
}

// dropRefs removes the ref that keeps the job's start, its branch, or both. A branch
// that the user has checked out stays.
func (m *Manager) dropRefs(ctx context.Context, rec *record, keep, branch bool, held heldLocks) error {
	lock, err := m.lockRepo(ctx, rec.Repo)
	if err != nil {
		return err
	}
	defer lock.release()
	g := rec.Repo.at(m, append(held[:len(held):len(held)], lock...))
	if keep {
		if err := g.run(ctx, nil, nil, "update-ref", "-d", keepRef(rec)); err != nil {
			return fmt.Errorf("remove the ref %s: %w", keepRef(rec), err)
		}
	}
	if !branch || rec.Branch == "" {
		return nil
	}
	if _, err := g.out(ctx, "show-ref", "--verify", "--quiet", "refs/heads/"+rec.Branch); err != nil {
		return nil
	}
	if _, err := g.out(ctx, "branch", "--quiet", "-D", "--", rec.Branch); err != nil {
		if ctx.Err() != nil {
			return err
		}
		// The user has it checked out, for one.
		m.log.Warn().Str("job", string(rec.Job)).Str("branch", rec.Branch).Err(err).Msg("a branch was not removed")
	}
	return nil
}
