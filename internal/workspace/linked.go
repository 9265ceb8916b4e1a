package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Worktrees of earlier versions are linked ones: their git directory lies in
// Repo.Common/worktrees (record.Admin), and their branch and stash are the user's
// repository's own. A state directory may still hold some. They are given a git
// directory of their own before they are worked in, or collected, again.

// agentIndex is the index of a linked worktree before Collect replaced it.
func (m *Manager) agentIndex(rec *record) string {
	return filepath.Join(m.home(rec.Job), "agent.index")
}

// adopt turns a linked worktree into one with a git directory of its own, as its
// agent left it. It may be repeated after it was killed.
func (m *Manager) adopt(ctx context.Context, rec *record, held heldLocks) error {
	if rec.Admin == "" {
		return nil
	}
	if err := m.adoptLinked(ctx, rec, held); err != nil {
		return fmt.Errorf("give the worktree %s a git directory of its own: %w", m.tree(rec), err)
	}
	return nil
}

func (m *Manager) adoptLinked(ctx context.Context, rec *record, held heldLocks) error {
	repo := rec.Repo.at(m, held)
	if err := m.uncommit(ctx, rec, held); err != nil {
		return fmt.Errorf("undo the commit of the last attempt: %w", err)
	}
	commit, _, err := repo.branchAt(ctx, rec.Branch)
	if err != nil {
		return err
	}
	if head, err := readRef(rec.Admin, "HEAD"); err == nil && objectID.MatchString(head) { // another branch, or none
		commit = head
	}
	commit = cmp.Or(commit, rec.Stacked, rec.StartCommit)
	if err := repo.run(ctx, nil, nil, "update-ref", keepRef(rec), cmp.Or(rec.Stacked, rec.StartCommit)); err != nil {
		return err
	}
	index := filepath.Join(rec.Admin, "index")
	if _, err := os.Stat(index); err != nil {
		index = m.startIndex(rec)
	}
	if err := m.remakeOwnGit(ctx, rec, commit, index, held); err != nil {
		return err
	}
	if err := m.dropLinked(ctx, rec); err != nil {
		return err
	}
	rec.Admin = ""
	return m.writeRecord(rec)
}

// dropLinked removes the entry of a linked worktree from its repository, as `git
// worktree prune` would, but never another program's.
func (m *Manager) dropLinked(ctx context.Context, rec *record) error {
	if rec.Admin == "" || filepath.Base(rec.Admin) != rec.Folder || !isDir(rec.Admin) {
		return nil
	}
	lock, err := m.lockRepo(ctx, rec.Repo)
	if err != nil {
		return err
	}
	defer lock.release()
	if to, err := readSmall(filepath.Join(rec.Admin, "gitdir")); err == nil {
		link := strings.TrimSpace(to)
		if link != "" && realOrSame(filepath.Dir(link)) != realOrSame(m.tree(rec)) {
			return fmt.Errorf("%s belongs to the worktree %s; run `git worktree prune` or remove it", rec.Admin, filepath.Dir(link))
		}
	}
	if err := removeAll(rec.Admin); err != nil {
		return fmt.Errorf("remove the old worktree: %w", err)
	}
	return nil
}

// dropTorn removes what a git that was killed in `worktree add` has left of linked
// worktrees of ours: an entry whose commondir is empty makes every git fail that
// lists the worktrees of the repository, whoever's.
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

// uncommit gives a linked worktree back to its agent as it left it: the branch
// without the commit of Collect, the index with what was staged and what was not.
// Where the branch was moved or something was staged since, all stays as it is.
func (m *Manager) uncommit(ctx context.Context, rec *record, held heldLocks) error {
	done := rec.Committed
	head, err := readSmall(filepath.Join(rec.Admin, "HEAD"))
	if done == nil || !done.Index || err != nil || strings.TrimSpace(head) != "ref: refs/heads/"+rec.Branch {
		return nil
	}
	if _, err := os.Stat(m.agentIndex(rec)); errors.Is(err, fs.ErrNotExist) {
		return nil // it was given back
	}
	ref, admin := "refs/heads/"+rec.Branch, filepath.Join(rec.Admin, "index")
	if err := noLinks(rec.Repo.Common, ref, "logs/"+ref, filepath.Join("worktrees", rec.Folder, "index")); err != nil {
		return err
	}
	reads, err := m.readsOf(ctx, rec, held)
	if err != nil {
		return err
	}
	look := m.baseGit(m.basePath(rec), m.tree(rec), filepath.Join(m.basePath(rec), "now.index"), held).within(
		append([]string{m.tree(rec)}, reads...), []string{m.basePath(rec)})
	_, _ = os.Remove(look.index()+".lock"), os.Remove(look.index())
	if err := copyIndex(admin, look.index()); err != nil {
		return nil // it was removed: git makes a new one
	}
	defer os.Remove(look.index())
	kept, err := os.ReadFile(m.agentIndex(rec))
	if err != nil {
		return err
	}
	if now, err := os.ReadFile(look.index()); err != nil || !bytes.Equal(now, kept) { // it is so if Collect was killed
		if tree, err := look.out(ctx, "write-tree", "--missing-ok"); err != nil || tree != done.Tree {
			return ctx.Err()
		}
	}
	repo := rec.Repo.at(m, held).with(identity...)
	switch at, _, err := repo.branchAt(ctx, rec.Branch); {
	case err != nil:
		return err
	case at == done.ID && done.Old != "":
		if err := repo.moveRef(ctx, ref, done.Old, done.ID, "job "+string(rec.Name)+" goes on"); err != nil {
			return err
		}
	case at != done.Old:
		return nil
	}
	_ = os.Remove(admin + ".lock") // of a git that was killed; the run is over
	if err := copyIndex(m.agentIndex(rec), admin); err != nil {
		return err
	}
	return os.Remove(m.agentIndex(rec)) // what the agent stages from here on stays
}
