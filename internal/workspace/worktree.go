package workspace

import (
	"cmp"
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

// makeWorktree makes a working tree at the job's base, with a git directory of its
// own (owngit.go). The user's repository gets the ref that keeps the base, and the
// commits of other jobs' patches.
func (m *Manager) makeWorktree(ctx context.Context, rec *record, req Request, held heldLocks) error {
	src, err := m.sourceOf(ctx, rec, req)
	if err != nil {
		return err
	}
	g := src.repo.at(m, held)
	if rec.StartCommit != "" {
		if tree, err := g.out(ctx, "rev-parse", "--verify", "--quiet", rec.StartCommit+"^{tree}"); err == nil {
			src.commit, src.tree = rec.StartCommit, tree
		}
	}
	rec.Repo, rec.Sub, rec.StartCommit, rec.StartTree = src.repo, src.sub, src.commit, ""
	rec.Branch = "agentsched/" + rec.Folder
	if err := m.writeRecord(rec); err != nil {
		return err
	}
	if err := m.dropWorktree(ctx, rec, held); err != nil {
		return err
	}
	if err := m.dropTorn(rec.Repo); err != nil {
		return err
	}
	if err := g.run(ctx, nil, nil, "update-ref", keepRef(rec), rec.StartCommit); err != nil {
		return fmt.Errorf("keep commit %s in %s: %w", rec.StartCommit, rec.Repo.Common, err)
	}
	refs, err := g.listRefs(ctx)
	if err != nil {
		return fmt.Errorf("list the branches of %s: %w", rec.Repo.Common, err)
	}
	if refs.taken {
		rec.Branch = ""
	}
	own, err := m.jobBase(ctx, rec, rec.Repo, held)
	if err != nil {
		return err
	}
	if err := m.makeOwnGit(rec, filepath.Join(m.tree(rec), ".git"), rec.StartCommit, own, refs); err != nil {
		return fmt.Errorf("make the git directory of the worktree: %w", err)
	}
	in, err := m.checkOut(ctx, rec, own, held)
	if err != nil {
		return fmt.Errorf("check out %s: %w", rec.StartCommit, m.explain(ctx, rec.Repo, err))
	}
	in = in.within(append([]string{m.tree(rec)}, rec.Reads...), append([]string{m.basePath(rec), filepath.Join(m.tree(rec), ".git"), rec.Repo.Objects}, lfsStorage(rec.Repo)...))
	err = m.applyPatches(ctx, rec, req, held, func(of job.Name, files []string) error {
		commit, err := in.commitPatch(ctx, g.with(identity...), keepRef(rec), cmp.Or(rec.Stacked, rec.StartCommit), of, files)
		if err != nil {
			return fmt.Errorf("commit the patch of job %s: %w", of, err)
		}
		rec.Stacked = commit
		return m.setHead(rec, commit)
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(m.tree(rec), rec.Sub), 0o777); err != nil {
		return err
	}
	return m.makeStart(ctx, rec, rec.Repo, own, m.ownIndex(rec), rec.Stacked != "", held)
}

// ownIndex is the index of the worktree's own git directory.
func (m *Manager) ownIndex(rec *record) string { return filepath.Join(m.tree(rec), ".git", "index") }

// checkOut writes the files of the start into a new worktree, and its index. It
// does so in the job's private git directory, whose filters are the trusted ones.
// It returns that git, which writes objects into the user's repository and uses the
// worktree's index.
func (m *Manager) checkOut(ctx context.Context, rec *record, own *repoConfig, held heldLocks) (git, error) {
	base := m.basePath(rec)
	if own.sparse() {
		sparse, err := sparsePatterns(rec.Repo)
		if err == nil {
			err = os.WriteFile(filepath.Join(base, "info", "sparse-checkout"), []byte(sparse), 0o600)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return git{}, err
		}
	}
	g := m.baseGit(base, m.tree(rec), m.ownIndex(rec), held).with("GIT_OBJECT_DIRECTORY=" + rec.Repo.Objects)
	_, err := g.out(ctx, "read-tree", "--reset", "-u", rec.StartCommit)
	return g, err
}

// dropWorktree removes the folder of rec, whole or half-made, and what a git that
// was killed has left of it in its repository. It leaves the refs.
func (m *Manager) dropWorktree(ctx context.Context, rec *record, held heldLocks) error {
	// This may take long, and no other job needs to wait for it.
	if err := removeAll(m.tree(rec)); err != nil {
		return fmt.Errorf("remove the old worktree: %w", err)
	}
	if err := m.dropLinked(ctx, rec); err != nil {
		return err
	}
	for _, ref := range []string{keepRef(rec), "refs/heads/" + rec.Branch} {
		err := os.Remove(filepath.Join(rec.Repo.Common, filepath.FromSlash(ref)+".lock"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("remove a stale lock: %w", err)
		}
	}
	return nil
}

// reviveWorktree readies a worktree that an earlier attempt worked in. Nothing
// of that attempt runs any more, so the lock files it left are stale.
func (m *Manager) reviveWorktree(ctx context.Context, rec *record, held heldLocks) (bool, error) {
	if !isDir(rec.Repo.Common) {
		same, err := m.unchanged(ctx, rec, held)
		if err != nil || same {
			return false, err
		}
		return false, fmt.Errorf("the repository %s is gone, and the worktree %s has changes; copy them away or start the job afresh", rec.Repo.Common, m.tree(rec))
	}
	if err := m.adopt(ctx, rec, held); err != nil {
		return false, err
	}
	own, err := m.openOwnGit(rec)
	if err != nil {
		return false, err
	}
	defer own.close()
	if !own.whole(rec.Repo) {
		return true, m.restoreOwnGit(ctx, rec, held)
	}
	for _, name := range []string{"index", "HEAD", "packed-refs", "config", "refs/heads/" + rec.Branch} {
		err := own.root.Remove(filepath.Join(".git", filepath.FromSlash(name)+".lock"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return false, fmt.Errorf("remove a stale lock: %w", err)
		}
	}
	return true, nil
}

// restoreOwnGit makes the git directory of a worktree anew: the agent removed it or
// put something else in its place. The branch begins where the user's repository has
// it, else at the start.
func (m *Manager) restoreOwnGit(ctx context.Context, rec *record, held heldLocks) error {
	g := rec.Repo.at(m, held)
	commit, _, err := g.branchAt(ctx, rec.Branch)
	if err != nil {
		return err
	}
	return m.remakeOwnGit(ctx, rec, cmp.Or(commit, rec.Stacked, rec.StartCommit), m.startIndex(rec), held)
}

// remakeOwnGit puts a new git directory into the place of that of a worktree, with
// HEAD at commit and a copy of an index, if that exists.
func (m *Manager) remakeOwnGit(ctx context.Context, rec *record, commit, index string, held heldLocks) error {
	next, at := filepath.Join(m.home(rec.Job), "git.next"), filepath.Join(m.tree(rec), ".git")
	err := removeAll(next)
	if err != nil {
		return err
	}
	refs, err := rec.Repo.at(m, held).listRefs(ctx)
	if err != nil {
		return err
	}
	own, err := m.readConfig(ctx, rec.Repo, held)
	if err != nil {
		return err
	}
	if err := m.makeOwnGit(rec, next, commit, own, refs); err != nil {
		return err
	}
	if err := copyIndex(index, filepath.Join(next, "index")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.writeRecord(rec); err != nil { // it says what packed-refs was
		return err
	}
	if err := removeAll(at); err != nil {
		return fmt.Errorf("restore %s: %w", at, err)
	}
	return os.Rename(next, at)
}

// branchAt returns the commit that a branch is at, "" if there is none, and where
// the user has it checked out, "" if nowhere.
func (g git) branchAt(ctx context.Context, branch string) (commit, folder string, err error) {
	if branch == "" {
		return "", "", nil
	}
	ref := "refs/heads/" + branch
	text, err := g.out(ctx, "for-each-ref", "--format=%(objecttype) %(objectname) %(worktreepath)", ref)
	if err != nil || text == "" {
		return "", "", err
	}
	f := strings.SplitN(text, " ", 3)
	if len(f) != 3 || f[0] != "commit" {
		return "", "", fmt.Errorf("%s points to a %s, not to a commit", ref, text)
	}
	return f[1], f[2], nil
}
