package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// RemoveOptions says how Remove goes about it.
type RemoveOptions struct {
	Force bool // delete the work too
}

// UnsavedError says that a workspace holds work that exists nowhere else.
type UnsavedError struct {
	Path   string // the workspace
	Reason string
}

func (e *UnsavedError) Error() string {
	return e.Path + " is kept: " + e.Reason
}

// Remove deletes the job's workspace, its worktree and its branch. It refuses
// with an *UnsavedError unless the workspace is as at the start or its content
// is exactly what the last collected patch holds and that patch is still there.
// A branch with commits that neither another branch nor the patch holds is left
// in the repository. A workspace that does not exist is no error. The user's own
// folder (direct) is never deleted.
func (m *Manager) Remove(ctx context.Context, id job.ID, _ job.Workspace, opts RemoveOptions) error {
	held, err := m.lockJob(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer held.release()
	if err := m.remove(ctx, id, opts, held); err != nil {
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
		if dropBranch, err = m.saved(ctx, rec, held); err != nil {
			return err
		}
	}
	if err := m.discard(ctx, rec, held); err != nil {
		return err
	}
	if rec.Branch != "" && dropBranch && isDir(rec.Repo.Common) {
		if err := m.deleteBranch(ctx, rec, held); err != nil {
			return err
		}
	}
	return removeAll(m.home(id))
}

// saved returns an *UnsavedError, or whether the branch can go too.
func (m *Manager) saved(ctx context.Context, rec *record, held heldLocks) (branch bool, err error) {
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
	}
	if rec.Spec.Isolation != job.Worktree || !isDir(rec.Repo.Common) {
		return false, nil
	}
	held2 := rec.Repo.at(m, held)
	if head, err := os.ReadFile(filepath.Join(rec.Admin, "HEAD")); err == nil && !strings.HasPrefix(string(head), "ref: ") {
		commit := strings.TrimSpace(string(head))
		if !m.elsewhere(ctx, held2, rec, n, commit, "") {
			return false, unsaved("commit %s is on no branch", commit)
		}
	}
	if rec.Branch == "" {
		return false, nil
	}
	tip, err := held2.out(ctx, "rev-parse", "--verify", "--quiet", "refs/heads/"+rec.Branch)
	if err != nil {
		return false, nil // the agent removed it
	}
	return m.elsewhere(ctx, held2, rec, n, tip, "refs/heads/"+rec.Branch), nil
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
		return fmt.Errorf("the collected patch is another: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the collected patch is gone: %w", err)
	case err != nil:
		return fmt.Errorf("the collected patch cannot be read: %w", err)
	}
	return nil
}

func (m *Manager) deleteBranch(ctx context.Context, rec *record, held heldLocks) error {
	lock, err := m.lockRepo(ctx, rec.Repo)
	if err != nil {
		return err
	}
	defer lock.release()
	g := rec.Repo.at(m, append(held[:len(held):len(held)], lock...))
	if _, err := g.out(ctx, "show-ref", "--verify", "--quiet", "refs/heads/"+rec.Branch); err != nil {
		return nil
	}
	if _, err := g.out(ctx, "branch", "--quiet", "-D", "--", rec.Branch); err != nil {
		if ctx.Err() != nil {
			return err
		}
		// The user has it checked out, for one.
		m.log.Warn().Str("job", string(rec.Job)).Str("branch", rec.Branch).Err(err).Msg("branch is left")
	}
	return nil
}
