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

// makeWorktree makes a git worktree at the job's base.
//
// It registers the worktree under the repository's lock, then fills it under
// the job's alone, since writing the files of a large repository takes long
// and no other job waits for it.
func (m *Manager) makeWorktree(ctx context.Context, rec *record, req Request, held heldLocks) error {
	src, err := m.source(ctx, rec.Spec)
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
	rec.Admin = filepath.Join(src.repo.Common, "worktrees", rec.Folder)
	if err := m.writeRecord(rec); err != nil {
		return err
	}
	if err := m.dropWorktree(ctx, rec, held); err != nil {
		return err
	}
	if err := m.addWorktree(ctx, rec, held); err != nil {
		return err
	}
	own, err := m.jobBase(ctx, rec, rec.Repo, held)
	if err != nil {
		return err
	}
	in, err := m.checkOut(ctx, rec, held)
	if err != nil {
		return fmt.Errorf("check out %s: %w", rec.StartCommit, m.explain(ctx, rec.Repo, err))
	}
	err = m.applyPatches(ctx, rec, req, held, func(of job.Name, files []string) error {
		commit, err := in.commitPatch(ctx, cmp.Or(rec.Stacked, rec.StartCommit), of, files)
		if err != nil {
			return fmt.Errorf("commit the patch of job %s: %w", of, err)
		}
		rec.Stacked = commit
		return nil
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(m.tree(rec), rec.Sub), 0o777); err != nil {
		return err
	}
	return m.makeStart(ctx, rec, rec.Repo, own, filepath.Join(rec.Admin, "index"), held)
}

// checkOut writes the files of the start into a new worktree, and its index. It
// does so in the job's private git directory: in the worktree's own, git would
// run what the repository's configuration names. It returns that git, which
// writes objects into the user's repository and uses the worktree's index.
func (m *Manager) checkOut(ctx context.Context, rec *record, held heldLocks) (git, error) {
	base := m.basePath(rec)
	sparse, err := readSmall(filepath.Join(rec.Admin, "info", "sparse-checkout"))
	if err == nil {
		err = os.WriteFile(filepath.Join(base, "info", "sparse-checkout"), []byte(sparse), 0o600)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return git{}, err
	}
	g := m.baseGit(base, m.tree(rec), filepath.Join(rec.Admin, "index"), held).with("GIT_OBJECT_DIRECTORY=" + rec.Repo.Objects)
	_, err = g.out(ctx, "read-tree", "--reset", "-u", rec.StartCommit)
	return g, err
}

func (m *Manager) addWorktree(ctx context.Context, rec *record, held heldLocks) error {
	lock, err := m.lockRepo(ctx, rec.Repo)
	if err != nil {
		return err
	}
	defer lock.release()
	both := append(held[:len(held):len(held)], lock...)
	g := rec.Repo.at(m, both)
	how := []string{"-B", rec.Branch}
	if _, err := g.out(ctx, "show-ref", "--verify", "--quiet", "refs/heads/agentsched"); err == nil {
		// A branch of this name leaves no room for branches below it.
		rec.Branch, how = "", []string{"--detach"}
		if err := m.writeRecord(rec); err != nil {
			return err
		}
	}
	if err := m.dropTorn(rec.Repo); err != nil {
		return err
	}
	args := append([]string{"worktree", "add", "--no-checkout"}, how...)
	if _, err := g.out(ctx, append(args, "--", m.tree(rec), rec.StartCommit)...); err != nil {
		return fmt.Errorf("add a worktree to %s: %w", rec.Repo.Common, err)
	}
	admin, err := git{m: m, dir: m.tree(rec), held: both}.out(ctx, "rev-parse", "--path-format=absolute", "--git-dir")
	if err != nil {
		return fmt.Errorf("find the git folder of the new worktree: %w", err)
	}
	if admin != rec.Admin && realOrSame(admin) != realOrSame(rec.Admin) {
		return fmt.Errorf("git keeps the new worktree in %s, expected %s", admin, rec.Admin)
	}
	return nil
}

// dropTorn removes what a git that was killed in `worktree add` has left of
// worktrees of ours: an entry whose commondir is empty makes every further
// `worktree add` to the repository fail, whoever's. The job that it belonged
// to makes it anew. Called under the repository's lock.
func (m *Manager) dropTorn(r *repo) error {
	dir := filepath.Join(r.Common, "worktrees")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		admin := filepath.Join(dir, e.Name())
		info, err := os.Stat(filepath.Join(admin, "commondir"))
		if err != nil || info.Size() > 0 {
			continue
		}
		to, err := readSmall(filepath.Join(admin, "gitdir")) // written before commondir
		if err != nil || !strings.HasPrefix(realOrSame(filepath.Dir(strings.TrimSpace(to))), realOrSame(m.root)+string(filepath.Separator)) {
			continue // not ours
		}
		if err := removeAll(admin); err != nil {
			return fmt.Errorf("remove a half-made worktree: %w", err)
		}
	}
	return nil
}

// dropWorktree removes the worktree of rec from its repository and the folder,
// whole or half-made, and leaves the branch. It deletes what `git worktree
// prune` would, but never another program's entry.
func (m *Manager) dropWorktree(ctx context.Context, rec *record, held heldLocks) error {
	// This may take long, and no other job needs to wait for it.
	if err := removeAll(m.tree(rec)); err != nil {
		return fmt.Errorf("remove the old worktree: %w", err)
	}
	lock, err := m.lockRepo(ctx, rec.Repo)
	if err != nil {
		return err
	}
	defer lock.release()
	if rec.Admin == "" || filepath.Base(rec.Admin) != rec.Folder {
		return nil
	}
	if to, err := readSmall(filepath.Join(rec.Admin, "gitdir")); err == nil {
		link := strings.TrimSpace(to)
		if link != "" && realOrSame(filepath.Dir(link)) != realOrSame(m.tree(rec)) {
			return fmt.Errorf("%s belongs to the worktree %s; run `git worktree prune` or remove it", rec.Admin, filepath.Dir(link))
		}
	}
	if err := removeAll(rec.Admin); err != nil {
		return fmt.Errorf("remove the old worktree: %w", err)
	}
	if rec.Branch != "" { // left by a git that was killed while it wrote the branch
		err = os.Remove(m.branchLock(rec))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	return nil
}

// branchLock is the file by which git locks the branch of a worktree.
func (m *Manager) branchLock(rec *record) string {
	return filepath.Join(rec.Repo.Common, "refs", "heads", filepath.FromSlash(rec.Branch)+".lock")
}

// reviveWorktree readies a worktree that an earlier attempt worked in. Nothing
// of that attempt runs any more, so the lock files it left are stale.
func (m *Manager) reviveWorktree(ctx context.Context, rec *record, held heldLocks) (bool, error) {
	if !isDir(rec.Admin) || !isDir(rec.Repo.Common) {
		same, err := m.unchanged(ctx, rec, held)
		if err != nil || same {
			return false, err
		}
		return false, fmt.Errorf("the repository %s no longer knows the worktree %s, which has changes; copy them away or start the job afresh", rec.Repo.Common, m.tree(rec))
	}
	for _, stale := range []string{filepath.Join(rec.Admin, "index.lock"), filepath.Join(rec.Admin, "HEAD.lock"), m.branchLock(rec)} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return false, fmt.Errorf("remove a stale lock: %w", err)
		}
	}
	if err := m.uncommit(ctx, rec, held); err != nil {
		return false, fmt.Errorf("undo the commit of the last attempt: %w", err)
	}
	link := filepath.Join(m.tree(rec), ".git")
	want := "gitdir: " + rec.Admin + "\n"
	if have, err := readSmall(link); err == nil && have == want {
		return true, nil
	}
	// The agent removed the link or put a repository of its own in its place.
	if err := removeAll(link); err != nil {
		return false, fmt.Errorf("restore %s: %w", link, err)
	}
	if err := writeFileAtomic(link, []byte(want)); err != nil {
		return false, fmt.Errorf("restore %s: %w", link, err)
	}
	return true, os.Chmod(link, 0o644)
}
