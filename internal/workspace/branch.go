package workspace

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/agentsched/agentsched/job"
)

// The branch of a worktree gets a commit of what the job has made, so that it can
// be merged and pushed like any other. Collect makes it (commitWork). An agent that
// goes on in the worktree later finds its branch and its index as it left them
// (uncommit), and the next commit is a child of this one.

// committed is what Collect last did to the branch of a worktree.
type committed struct {
	ID   string `json:"id"`            // the commit of the work
	Tree string `json:"tree"`          // its tree
	Old  string `json:"old,omitempty"` // what the branch was at before, "" if it was gone
	// Index is set if the worktree's index was replaced; agentIndex is what it was.
	Index bool `json:"index,omitempty"`
}

func (m *Manager) agentIndex(rec *record) string {
	return filepath.Join(m.home(rec.Job), "agent.index")
}

// commitWork makes the branch of n's worktree hold what n holds. The parent is
// what the branch is at, with the commits that the agent made itself; if it is
// gone, the start. Nothing is committed that is there already; without any work
// the result is nil.
//
// It is made of plumbing: no hook, signature or filter takes part. Objects come
// first and the branch last, so that a process killed in between leaves nothing
// but objects without a reference.
func (m *Manager) commitWork(ctx context.Context, n *present, held heldLocks) (*job.Commit, error) {
	rec := n.rec
	ref := "refs/heads/" + rec.Branch
	if err := noLinks(rec.Repo.Common, ref, "logs/"+ref, filepath.Join("worktrees", rec.Folder, "index")); err != nil {
		return nil, err
	}
	repo := rec.Repo.at(m, held).with("GIT_NO_REPLACE_OBJECTS=1").with(identity...)
	old, err := repo.refAt(ctx, ref)
	if err != nil {
		return nil, err
	}
	before := rec.Committed
	tip := cmp.Or(old, rec.Stacked, rec.StartCommit)
	if before != nil && before.Old == old && n.git.run(ctx, nil, nil, "cat-file", "-e", before.ID) == nil {
		tip = before.ID // uncommit has moved the branch back
	}
	tree, err := n.git.out(ctx, "rev-parse", "--verify", "--quiet", tip+"^{tree}")
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", tip, err)
	}
	if tip == cmp.Or(rec.Stacked, rec.StartCommit) && n.tree == rec.StartTree {
		return nil, nil
	}
	c := &job.Commit{Branch: rec.Branch, ID: tip, Before: old}
	if tree != n.tree {
		parents := []string{"-p", tip}
		if before != nil && tip != before.ID && n.git.run(ctx, nil, nil, "merge-base", "--is-ancestor", before.ID, tip) != nil &&
			n.git.run(ctx, nil, nil, "cat-file", "-e", before.ID) == nil {
			parents = append(parents, "-p", before.ID) // may have been pushed
		}
		args := append([]string{"commit-tree", n.tree, "-m", subject(rec), "-m", "Agentsched-Job: " + string(rec.Job)}, parents...)
		if c.ID, err = n.git.with(identity...).out(ctx, args...); err != nil {
			return nil, err
		}
		if err := m.handOver(ctx, n, repo, tree, c.ID); err != nil {
			return nil, fmt.Errorf("copy the objects into the repository: %w", err)
		}
	}
	if c.ID == old {
		if before == nil || c.ID != before.ID {
			return c, nil
		}
		c.Before = before.Old
		if m.isAgentIndex(rec) { // killed before it was replaced
			err = replaceIndex(n.git.index(), filepath.Join(rec.Admin, "index"))
		}
		return c, err
	}
	done := &committed{ID: c.ID, Tree: n.tree, Old: old}
	admin := filepath.Join(rec.Admin, "index")
	if m.onBranch(rec) {
		if err := copyIndex(admin, m.agentIndex(rec)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		} else {
			done.Index = err == nil
		}
	}
	rec.Committed = done
	if err := m.writeRecord(rec); err != nil {
		return nil, err
	}
	if err := repo.moveRef(ctx, ref, c.ID, old, "work of job "+string(rec.Name)); err != nil {
		rec.Committed = before
		return nil, errors.Join(fmt.Errorf("move the branch: %w", err), m.writeRecord(rec))
	}
	if done.Index {
		if err := replaceIndex(n.git.index(), admin); err != nil {
			return c, fmt.Errorf("write the worktree's index, so that git status is clean there: %w", err)
		}
	}
	return c, nil
}

// refAt returns the commit that ref is at, or "" if there is no such ref.
func (g git) refAt(ctx context.Context, ref string) (string, error) {
	text, err := g.out(ctx, "for-each-ref", "--format=%(objecttype) %(objectname)", ref)
	if err != nil || text == "" {
		return "", err
	}
	commit, ok := strings.CutPrefix(text, "commit ")
	if !ok {
		return "", fmt.Errorf("%s points to a %s, not to a commit", ref, text)
	}
	return commit, nil
}

// moveRef sets ref to a commit unless it is no longer at old, "" for none. A
// symbolic ref is replaced: what it leads to is the user's.
func (g git) moveRef(ctx context.Context, ref, commit, old, why string) error {
	if old == "" {
		old = strings.Repeat("0", len(commit))
	}
	return g.run(ctx, nil, nil, "update-ref", "--no-deref", "-m", why, ref, commit, old)
}

// handOver writes the objects of commit into the repository that are not part of
// the tree below it, which is there.
func (m *Manager) handOver(ctx context.Context, n *present, repo git, below, commit string) error {
	words, err := n.git.list(ctx, "diff-tree", "-r", "-t", "-z", "--raw", "--no-abbrev", "--no-renames", below, n.tree)
	if err != nil {
		return err
	}
	ids := []string{commit, n.tree}
	for i := 0; i+1 < len(words); i += 2 { // :100644 100755 OLD NEW M, PATH
		f := strings.Fields(words[i])
		if len(f) == 5 && f[4] != "D" && f[1] != "160000" {
			ids = append(ids, f[3])
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	pack, err := os.Create(filepath.Join(m.home(n.rec.Job), "now.pack"))
	if err != nil {
		return err
	}
	defer os.Remove(pack.Name())
	defer pack.Close()
	err = n.git.run(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), pack, "pack-objects", "--quiet", "--stdout", "--window=0")
	if err != nil {
		return err
	}
	if _, err := pack.Seek(0, 0); err != nil {
		return err
	}
	// As git itself does with what it has fetched.
	const unpackLimit = 100
	if len(ids) > unpackLimit {
		return repo.run(ctx, pack, new(bytes.Buffer), "index-pack", "--stdin")
	}
	return repo.run(ctx, pack, nil, "unpack-objects", "-q")
}

// onBranch reports whether the worktree of rec has the job's branch checked out.
func (m *Manager) onBranch(rec *record) bool {
	head, err := readSmall(filepath.Join(rec.Admin, "HEAD"))
	return err == nil && strings.TrimSpace(head) == "ref: refs/heads/"+rec.Branch
}

// uncommit gives a worktree back to its agent as it left it: the branch without
// the commit of Collect, the index with what was staged and what was not. Where
// the branch was moved or something was staged since, all stays as it is.
func (m *Manager) uncommit(ctx context.Context, rec *record, held heldLocks) error {
	done := rec.Committed
	if done == nil || !done.Index || !m.onBranch(rec) {
		return nil
	}
	if _, err := os.Stat(m.agentIndex(rec)); errors.Is(err, fs.ErrNotExist) {
		return nil // it was given back
	}
	ref, admin := "refs/heads/"+rec.Branch, filepath.Join(rec.Admin, "index")
	if err := noLinks(rec.Repo.Common, ref, "logs/"+ref, filepath.Join("worktrees", rec.Folder, "index")); err != nil {
		return err
	}
	look := m.baseGit(m.basePath(rec), m.tree(rec), filepath.Join(m.home(rec.Job), "now.index"), held)
	_, _ = os.Remove(look.index()+".lock"), os.Remove(look.index())
	if err := copyIndex(admin, look.index()); err != nil {
		return nil // it was removed: git makes a new one
	}
	defer os.Remove(look.index())
	if !m.isAgentIndex(rec) { // it is so if Collect was killed
		if tree, err := look.out(ctx, "write-tree", "--missing-ok"); err != nil || tree != done.Tree {
			return ctx.Err()
		}
	}
	repo := rec.Repo.at(m, held).with(identity...)
	switch at, err := repo.refAt(ctx, ref); {
	case err != nil:
		return err
	case at == done.ID && done.Old != "":
		if err := repo.moveRef(ctx, ref, done.Old, done.ID, "job "+string(rec.Name)+" goes on"); err != nil {
			return err
		}
	case at != done.Old:
		return nil
	}
	if err := replaceIndex(m.agentIndex(rec), admin); err != nil {
		return err
	}
	return os.Remove(m.agentIndex(rec)) // what the agent stages from here on stays
}

// isAgentIndex reports whether the worktree's index is the one that was kept.
func (m *Manager) isAgentIndex(rec *record) bool {
	kept, err := indexSum(m.agentIndex(rec))
	if err != nil {
		return false
	}
	now, err := indexSum(filepath.Join(rec.Admin, "index"))
	return err == nil && kept == now
}

// indexSum returns the hash of an index, without holding all of it in memory.
func indexSum(path string) (string, error) {
	f, _, err := openBounded(path, maxIndex)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, io.LimitReader(f, maxIndex))
	return string(h.Sum(nil)), err
}

// noLinks returns an error if one of the paths below dir leads through a symbolic
// link or to something else than a file: the agent may have put it there, and
// what git would write then lies anywhere.
func noLinks(dir string, paths ...string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, p := range paths {
		if behindLink(root, p) {
			return fmt.Errorf("%s leads through a symbolic link", filepath.Join(dir, p))
		}
		info, err := root.Lstat(p)
		if err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a file", filepath.Join(dir, p))
		}
	}
	return nil
}

// maxSubject bounds the subject of a commit, in characters.
const maxSubject = 72

// subject is the first line of the message of a job's commit: its name and what
// it is about, as far as that is safe to print.
func subject(rec *record) string {
	words := strings.FieldsFunc(rec.Title, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) })
	text := []rune(string(rec.Name))
	if len(words) > 0 {
		text = []rune(string(rec.Name) + ": " + strings.Join(words, " "))
	}
	if len(text) > maxSubject {
		text = append(text[:maxSubject-1], '…')
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}
