package workspace

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Changes is what differs between a workspace and its start.
type Changes struct {
	Patch string // path of the patch, "" when nothing changed
	Bytes int64  // its size
	// Whole is the path of a patch that holds those that the workspace was stacked
	// on, too; "" where it was stacked on none, or is no worktree.
	Whole       string
	WholeBytes  int64
	WholeSHA256 string
	// SHA256 is the hash of Patch, in hexadecimal; "" when nothing changed. Diff
	// leaves it out.
	SHA256 string
	// Files has a renamed file once, by its new name. With isolation direct it
	// also has the files of .git that decide what git does, e.g. .git/config; no
	// patch holds those. It is not bounded; see job.MaxFiles.
	Files    []job.FileChange
	DiffStat string // e.g. "2 files changed, 5 insertions(+)", "" when nothing changed
	// Commit holds the work on the branch of a job with a worktree; nil without a branch, or work.
	// Diff leaves it out.
	Commit *job.Commit
	// Notes tell the user what the patch lacks.
	Notes []string
}

// PatchName is the name of the patch file that Collect writes.
const PatchName = "changes.patch"

// WholeName is the name of the patch file with the patches below it.
const WholeName = "whole.patch"

// Where the paths of a patch are relative to is said in its first line, which
// git and patch skip.
const (
	headerRepository = "# agentsched: paths are relative to the top of the repository"
	headerFolder     = "# agentsched: paths are relative to the workspace folder"
)

// Collect writes a patch of everything that changed since the start into the
// folder dir and remembers that it did, for Remove. The branch of a job with a
// worktree gets a commit of it (see commitWork). No file of the workspace is touched.
func (m *Manager) Collect(ctx context.Context, ws *Workspace, dir string) (Changes, error) {
	if m.leftNothing(ws) {
		return Changes{}, nil
	}
	c, err := m.collect(ctx, ws.Job, dir)
	if err != nil {
		return Changes{}, fmt.Errorf("collect the changes of job %s: %w", ws.Job, err)
	}
	return c, nil
}

func (m *Manager) collect(ctx context.Context, id job.ID, dir string) (Changes, error) {
	held, err := m.lockJob(ctx, id)
	if err != nil {
		return Changes{}, err
	}
	defer held.release()
	rec, err := m.readyRecord(id)
	if err != nil {
		return Changes{}, err
	}
	if rec.Spec.Isolation == job.Worktree && isDir(rec.Repo.Common) {
		if err := m.adopt(ctx, rec, held); err != nil {
			return Changes{}, err
		}
	}
	settings, notes, err := m.changedSettings(ctx, rec, held)
	if err != nil {
		return Changes{}, err
	}
	if rec.Spec.Isolation != job.Direct {
		settings = nil
	}
	n, err := m.now(ctx, rec, held)
	if err != nil || n == nil {
		return Changes{Files: settings, Notes: append(notes, rec.Notes...)}, err
	}
	defer n.close()
	c, err := n.list(ctx)
	if err != nil {
		return Changes{}, err
	}
	c.Files, c.Notes = append(c.Files, settings...), append(c.Notes, notes...)
	if err := m.savePatch(ctx, n, &c, dir); err != nil {
		return Changes{}, err
	}
	if rec.Branch != "" {
		commit, notes, err := m.commitWork(ctx, n, held)
		c.Commit, c.Notes = commit, append(c.Notes, notes...)
		if err != nil {
			c.Notes = append(c.Notes, fmt.Sprintf("the patch holds the work, but the branch %s may not: %v", rec.Branch, err))
		}
	}
	if rec.Spec.Isolation == job.Worktree && isDir(rec.Repo.Common) {
		left, err := m.leftovers(ctx, rec, "", held)
		if err != nil {
			return Changes{}, err
		}
		c.Notes = append(c.Notes, left...)
	}
	return c, nil
}

// savePatch writes the patch of n into the folder dir and remembers it.
func (m *Manager) savePatch(ctx context.Context, n *present, c *Changes, dir string) (err error) {
	rec := n.rec
	if n.tree == rec.StartTree && rec.Saved == nil && rec.Stacked == "" {
		return nil // nothing to keep: it can be removed as it is
	}
	save := &saved{Tree: n.tree, Complete: n.complete}
	if n.tree != rec.StartTree {
		if c.Patch, c.Bytes, save.SHA256, err = n.writePatch(ctx, dir, PatchName); err != nil {
			return err
		}
		save.Patch, c.SHA256 = c.Patch, save.SHA256
	}
	if rec.Stacked != "" {
		whole := *n
		whole.from = rec.StartCommit
		if c.Whole, c.WholeBytes, c.WholeSHA256, err = whole.writePatch(ctx, dir, WholeName); err != nil {
			return err
		}
	}
	rec.Saved = save
	return m.writeRecord(rec)
}

// Diff writes to w what Collect would write into a file, and remembers nothing.
func (m *Manager) Diff(ctx context.Context, ws *Workspace, w io.Writer) (Changes, error) {
	held, err := m.lockJob(ctx, ws.Job)
	if err != nil {
		return Changes{}, err
	}
	defer held.release()
	rec, err := m.readyRecord(ws.Job)
	if err != nil {
		return Changes{}, err
	}
	n, err := m.now(ctx, rec, held)
	if err != nil {
		return Changes{}, fmt.Errorf("compare the workspace of job %s: %w", ws.Job, err)
	}
	if n == nil {
		return Changes{Notes: rec.Notes}, nil
	}
	defer n.close()
	c, err := n.list(ctx)
	if err == nil && n.tree != rec.StartTree {
		err = n.patch(ctx, w)
	}
	if err != nil {
		return Changes{}, fmt.Errorf("compare the workspace of job %s: %w", ws.Job, err)
	}
	return c, nil
}

// present is a snapshot of a workspace as it is now.
type present struct {
	rec      *record
	git      git
	from     string // what is compared with; "" is the start
	tree     string
	notes    []string
	complete bool
	large    largeFiles
}

// now takes a snapshot; nil when there is no start to compare with.
func (m *Manager) now(ctx context.Context, rec *record, held heldLocks) (*present, error) {
	if rec.StartTree == "" {
		return nil, nil
	}
	if empty, err := m.stillEmpty(rec); err != nil {
		return nil, err
	} else if empty {
		return &present{rec: rec, tree: emptyTree, complete: true}, nil
	}
	if err := m.ensureBase(ctx, rec, held); err != nil {
		return nil, err
	}
	index := filepath.Join(m.basePath(rec), "now.index")
	// Of a git, and of a comparison, that were killed; we hold the job's lock.
	_, _ = os.Remove(index+".lock"), os.Remove(index)
	reads, err := m.readsOf(ctx, rec, held)
	if err != nil {
		return nil, err
	}
	n := &present{rec: rec, git: m.baseGit(m.basePath(rec), m.tree(rec), index, held).within(
		append([]string{m.tree(rec)}, reads...), append([]string{m.basePath(rec)}, lfsStorage(rec.Repo)...))}
	marked, err := copyForLook(m.startIndex(rec), index, m.tree(rec), rec.Repo.hash)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	n.git.believed = marked
	n.git.large = &n.large
	n.large.root = filepath.Join(n.git.dir, rec.Scope)
	subs, err := n.git.changedSubmodules(ctx, rec.Submodules)
	if err != nil {
		return nil, err
	}
	tree, missed, err := n.git.snapshot(ctx, rec.Scope, &n.notes)
	if err != nil {
		return nil, err
	}
	n.git.believed = false // no file is looked at any more
	for _, f := range missed {
		n.notes = append(n.notes, "not part of the patch: "+f)
	}
	n.tree, n.notes, n.complete = tree, append(n.notes, subs...), len(missed)+len(subs) == 0
	return n, nil
}

func (n *present) close() {
	if index := n.git.index(); index != "" {
		os.Remove(index)
	}
}

// diff returns the arguments of a comparison of the start with now.
func (n *present) diff(args ...string) []string {
	a := append([]string{"diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=none"}, args...)
	if n.rec.Scope != "" {
		a = append(a, "--relative="+n.rec.Scope+"/")
	}
	from := n.from
	if from == "" {
		from = n.rec.StartTree
	}
	return append(a, from, n.tree)
}

func (n *present) list(ctx context.Context) (Changes, error) {
	c := Changes{Notes: n.notes, Files: n.large.files}
	if n.tree == n.rec.StartTree {
		return c, nil
	}
	words, err := n.git.list(ctx, n.diff("-z", "--name-status")...)
	if err != nil {
		return c, err
	}
	c.Files = append(c.Files, fileChanges(words)...)
	stat, err := n.git.out(ctx, n.diff("--shortstat")...)
	c.DiffStat = strings.TrimSpace(stat)
	return c, err
}

// fileChanges reads what diff-tree prints with -z --name-status.
func fileChanges(words []string) (files []job.FileChange) {
	for i := 0; i+1 < len(words); i += 2 {
		change := job.FileChange{Path: words[i+1], Change: "modified"}
		switch words[i][0] {
		case 'A':
			change.Change = "added"
		case 'D':
			change.Change = "deleted"
		case 'R':
			i++
			change.Change, change.Path = "renamed", words[i+1]
		}
		files = append(files, change)
	}
	return files
}

func (n *present) patch(ctx context.Context, w io.Writer) error {
	header := headerFolder
	if n.rec.Spec.Isolation == job.Worktree {
		header = headerRepository
	}
	if _, err := io.WriteString(w, header+"\n"); err != nil {
		return err
	}
	return n.git.run(ctx, nil, w, n.diff("-p", "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/")...)
}

func (n *present) writePatch(ctx context.Context, dir, name string) (path string, size int64, sum string, err error) {
	path = filepath.Join(realOrSame(dir), name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", 0, "", err
	}
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return "", 0, "", err
	}
	defer os.Remove(f.Name()) // fails once renamed, as it should
	hash := sha256.New()
	b := bufio.NewWriterSize(io.MultiWriter(f, hash), 64<<10)
	err = n.patch(ctx, b)
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return path, size, hex.EncodeToString(hash.Sum(nil)), err
}

// unchanged reports whether a workspace is as it was at the start.
func (m *Manager) unchanged(ctx context.Context, rec *record, held heldLocks) (bool, error) {
	n, err := m.now(ctx, rec, held)
	if err != nil || n == nil {
		return false, err
	}
	defer n.close()
	return n.complete && n.tree == rec.StartTree, nil
}
