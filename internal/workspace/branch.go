package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/agentsched/agentsched/job"
)

// A job with a worktree has a branch in the user's repository, agentsched/NAME-ID,
// from when Collect makes a commit of its work (commitWork), so that it can be merged
// and pushed like any other. The agent's own branch is in its own git directory, and
// no commit of ours goes there: an agent that goes on in the worktree finds its branch
// and its index as it left them, and the next commit of ours is a child of this one.

// committed is what Collect last did to the branch of a worktree.
type committed struct {
	ID   string `json:"id"`            // the commit of the work
	Tree string `json:"tree"`          // its tree
	Old  string `json:"old,omitempty"` // what the agent's branch was at, "" if it was gone
	// Index says of a linked worktree that its index was replaced; agentIndex is what
	// it was.
	Index bool `json:"index,omitempty"`
}

// commitWork makes the job's branch hold what n holds. The parent is what the agent
// has checked out, with the commits that it made itself; if there is nothing, the
// start. Commits that came onto the branch in other ways stay below. Nothing is
// committed that is there already; without any work the result is nil.
//
// It is made of plumbing: no hook, signature or filter takes part. Objects come
// first and the branch last, so that a process killed in between leaves nothing
// but objects without a reference.
func (m *Manager) commitWork(ctx context.Context, n *present, held heldLocks) (c *job.Commit, notes []string, err error) {
	rec := n.rec
	ref := "refs/heads/" + rec.Branch
	if err := noLinks(rec.Repo.Common, ref, "logs/"+ref); err != nil {
		return nil, nil, err
	}
	repo := rec.Repo.at(m, held).with("GIT_NO_REPLACE_OBJECTS=1").with(identity...)
	at, folder, err := repo.branchAt(ctx, rec.Branch)
	if err != nil {
		return nil, nil, err
	}
	start := cmp.Or(rec.Stacked, rec.StartCommit)
	agents, notes, err := m.agentsTip(ctx, rec, held)
	if err != nil {
		return nil, nil, err
	}
	tip := cmp.Or(agents, start)
	before := rec.Committed
	below := []string{at}
	if before != nil {
		below = []string{before.ID, at} // may have been pushed
	}
	tip, others := repo.join(ctx, tip, below)
	tree, err := n.git.out(ctx, "rev-parse", "--verify", "--quiet", tip+"^{tree}")
	if err != nil {
		return nil, notes, fmt.Errorf("read commit %s: %w", tip, err)
	}
	if tip == start && n.tree == rec.StartTree {
		return nil, notes, nil
	}
	c = &job.Commit{Branch: rec.Branch, ID: tip, Before: agents}
	if at != "" && (before == nil || at != before.ID) {
		c.Before = at
	}
	if tree != n.tree || len(others) > 0 {
		args := []string{"commit-tree", n.tree, "-m", subject(rec), "-m", "Agentsched-Job: " + string(rec.Job), "-p", tip}
		for _, o := range others {
			args = append(args, "-p", o)
		}
		if c.ID, err = n.git.with(identity...).out(ctx, args...); err != nil {
			return nil, notes, err
		}
		if err := m.handOver(ctx, n, repo, tree, c.ID); err != nil {
			return nil, notes, fmt.Errorf("copy the objects into the repository: %w", err)
		}
	}
	if c.ID == at {
		return c, notes, nil
	}
	if folder != "" {
		return nil, notes, fmt.Errorf("it is checked out in %s; switch to another branch there, and collect again", folder)
	}
	rec.Committed = &committed{ID: c.ID, Tree: n.tree, Old: agents}
	if err := m.writeRecord(rec); err != nil {
		return nil, notes, err
	}
	if err := repo.moveRef(ctx, ref, c.ID, at, "work of job "+string(rec.Name)); err != nil {
		rec.Committed = before
		return nil, notes, errors.Join(fmt.Errorf("move the branch: %w", err), m.writeRecord(rec))
	}
	return c, notes, nil
}

// agentsTip returns the commit that the agent has checked out, which is in the user's
// repository then, or "" and a note if that cannot be.
func (m *Manager) agentsTip(ctx context.Context, rec *record, held heldLocks) (tip string, notes []string, err error) {
	own, err := m.openOwnGit(rec)
	if err != nil {
		return "", nil, err
	}
	tip = own.tip(rec)
	own.close()
	if tip == "" || tip == rec.StartCommit || tip == rec.Stacked {
		return tip, nil, nil
	}
	err = m.importCommits(ctx, rec, tip, held)
	if err == nil {
		if g := rec.Repo.at(m, held); g.run(ctx, nil, new(bytes.Buffer), "merge-base", rec.StartCommit, tip) != nil {
			err = errors.New("they do not follow from the commit that the job began with")
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return "", nil, err
		}
		return "", []string{fmt.Sprintf("the branch %s lacks the agent's own commits, and holds their work as one: %v", rec.Branch, err)}, nil
	}
	return tip, nil, nil
}

// join returns the commit that follows from tip and commits that were made from it
// elsewhere, and which of these are no ancestors of that. Commits that do not exist
// are left out.
func (g git) join(ctx context.Context, tip string, commits []string) (joined string, others []string) {
	ancestor := func(a, b string) bool {
		return a == b || g.run(ctx, nil, nil, "merge-base", "--is-ancestor", a, b) == nil
	}
	for _, c := range commits {
		switch {
		case c == "" || ancestor(c, tip):
		case ancestor(tip, c):
			tip = c
		case g.run(ctx, nil, nil, "cat-file", "-e", c) == nil && !slices.Contains(others, c):
			others = append(others, c)
		}
	}
	return tip, slices.DeleteFunc(others, func(o string) bool { return ancestor(o, tip) })
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
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return repo.takePack(ctx, n.rec.Repo, n.git.reach.read, pack)
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
