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

// Check says whether a workspace could be made, before the job is submitted.
// Its errors tell a user what to do. Two processes may disagree about
// permissions, so Prepare can still fail.
func (m *Manager) Check(ctx context.Context, w job.Workspace) error {
	if err := m.checkGit(ctx); err != nil {
		return err
	}
	if w.Isolation == job.NoWorkspace {
		return nil
	}
	if w.Parcel != (job.Parcel{}) {
		return nil // whoever took it in has checked it
	}
	if w.Repo != "" {
		return m.CheckRepo(w.Repo)
	}
	if err := checkFolder(w.Path); err != nil {
		return err
	}
	if err := m.checkOutside(w); err != nil {
		return err
	}
	switch w.Isolation {
	case job.Direct:
		if unix.Access(w.Path, unix.W_OK) != nil {
			return fmt.Errorf("%s cannot be written to; change its permissions or use isolation copy", w.Path)
		}
		return nil
	case job.Worktree:
		_, err := m.source(ctx, w)
		return err
	case job.Copy:
		return nil
	}
	return fmt.Errorf("isolation %q is unknown, want worktree, direct, copy or none", w.Isolation)
}

func checkFolder(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("workspace %q is not an absolute path", path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("workspace %s does not exist; create it or correct the path", path)
	case err != nil:
		return fmt.Errorf("workspace %s cannot be read: %w", path, err)
	case !info.IsDir():
		return fmt.Errorf("workspace %s is not a folder", path)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && job.InKernel(real) {
		return fmt.Errorf("workspace %s is not a folder to work in: it is %s, where the kernel shows processes and devices", path, real)
	}
	return nil
}

// checkOutside refuses what the scheduler keeps as a folder to work in: an agent
// there would be given the queue and the other jobs' work. A folder above it is
// allowed, since what is excluded is neither copied nor compared.
func (m *Manager) checkOutside(w job.Workspace) error {
	if w.Path == "" {
		return nil
	}
	real := realOrSame(w.Path)
	for _, own := range m.exclude {
		if inside(real, own) {
			return fmt.Errorf("workspace %s lies in the scheduler's own folder %s; name a folder of your project, or another state directory with --state DIR", w.Path, own)
		}
	}
	return nil
}

// CheckRepo says whether the repository at an address may be the origin of a workspace.
// One that is a folder of this host must be one that a job could work in.
func (m *Manager) CheckRepo(address string) error {
	if err := job.ValidRepo(address); err != nil {
		return err
	}
	folder, local := job.LocalRepo(address)
	if !local {
		return nil // it is asked when the job runs
	}
	if err := checkFolder(folder); err != nil {
		return err
	}
	return m.checkOutside(job.Workspace{Path: folder})
}

// repo is a git repository of the user.
type repo struct {
	Top     string `json:"top,omitempty"` // of the working tree, "" for a bare repository
	Common  string `json:"common"`        // the .git folder that all its worktrees share
	Objects string `json:"objects"`
	Format  string `json:"format"` // sha1 or sha256
	// Promisor is the remote of a partial clone, "" for a repository that has all
	// its objects. makeBase sets it.
	Promisor string `json:"promisor,omitempty"`
}

// at runs git on the repository itself, without a working tree.
func (r *repo) at(m *Manager, held heldLocks) git {
	return git{m: m, dir: r.Common, env: []string{"GIT_DIR=" + r.Common}, held: held}
}

// dir is where a user would run git on it.
func (r *repo) dir() string { return cmp.Or(r.Top, r.Common) }

// findRepo returns the repository that path lies in, or nil when there is none.
func (m *Manager) findRepo(ctx context.Context, path string) (*repo, error) {
	g := git{m: m, dir: path}
	where, err := g.out(ctx, "rev-parse", "--is-bare-repository", "--is-inside-git-dir", "--show-object-format")
	if gerr := (*gitError)(nil); errors.As(err, &gerr) {
		switch {
		case strings.Contains(gerr.stderr, "not a git repository"):
			return nil, nil
		case strings.Contains(gerr.stderr, "dubious ownership"):
			return nil, fmt.Errorf("git refuses to work in %s because it belongs to another user; if you trust it, run `git config --global --add safe.directory '%s'`", path, path)
		}
		return nil, fmt.Errorf("look for a git repository in %s: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	r := new(repo)
	words := strings.Fields(where)
	if len(words) != 3 {
		return nil, fmt.Errorf("look for a git repository in %s: git printed %q", path, where)
	}
	r.Format = words[2]
	if bare := words[0] == "true"; !bare {
		if words[1] == "true" {
			return nil, fmt.Errorf("%s lies inside the .git folder of a repository; name the repository itself", path)
		}
		if r.Top, err = g.out(ctx, "rev-parse", "--path-format=absolute", "--show-toplevel"); err != nil {
			return nil, fmt.Errorf("look for a git repository in %s: %w", path, err)
		}
		if !inside(realOrSame(path), realOrSame(r.Top)) {
			return nil, fmt.Errorf("core.worktree of the repository of %s names another folder, %s; remove it with `git config --unset core.worktree`", path, r.Top)
		}
	}
	if r.Common, err = g.out(ctx, "rev-parse", "--path-format=absolute", "--git-common-dir"); err == nil {
		r.Objects, err = g.out(ctx, "rev-parse", "--path-format=absolute", "--git-path", "objects")
	}
	if err != nil {
		return nil, fmt.Errorf("look for a git repository in %s: %w", path, err)
	}
	r.Common = realOrSame(r.Common)
	return r, nil
}

// source is what a worktree is made from.
type source struct {
	repo   *repo
	sub    string // the user's folder below the top, "" for the top
	commit string
	tree   string
}

func (m *Manager) source(ctx context.Context, w job.Workspace) (*source, error) {
	if err := checkFolder(w.Path); err != nil {
		return nil, err
	}
	r, err := m.findRepo(ctx, w.Path)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("%s is not a git repository; run `git init` and commit, or use isolation copy or direct", w.Path)
	}
	s := &source{repo: r}
	if r.Top != "" {
		sub, err := filepath.Rel(realOrSame(r.Top), realOrSame(w.Path))
		if err != nil {
			return nil, fmt.Errorf("find %s in its repository %s: %w", w.Path, r.Top, err)
		}
		if sub != "." {
			s.sub = filepath.ToSlash(sub)
		}
	}
	base := w.Base
	if base == "" {
		base = "HEAD"
	}
	if strings.HasPrefix(base, "-") {
		return nil, fmt.Errorf("base %q cannot be a commit, branch or tag", base)
	}
	g := git{m: m, dir: w.Path} // HEAD is that of the user's worktree, not of the common folder
	if s.commit, err = g.out(ctx, "rev-parse", "--verify", "--quiet", base+"^{commit}"); err != nil {
		switch {
		case ctx.Err() != nil:
			return nil, err
		case w.Base != "":
			return nil, fmt.Errorf("%q is not a commit, branch or tag of %s", w.Base, w.Path)
		}
		return nil, fmt.Errorf("%s has no commit yet; commit something, or use isolation copy or direct", w.Path)
	}
	if s.tree, err = g.out(ctx, "rev-parse", "--verify", s.commit+"^{tree}"); err != nil {
		return nil, fmt.Errorf("read commit %s of %s: %w", s.commit, w.Path, m.explain(ctx, r, err))
	}
	if s.sub != "" {
		if kind, err := g.out(ctx, "cat-file", "-t", s.commit+":"+s.sub); err != nil || kind != "tree" {
			if err = m.explain(ctx, r, err); r.Promisor != "" {
				return nil, err
			}
			return nil, fmt.Errorf("folder %s does not exist in %s of %s; commit it, or use isolation copy or direct", s.sub, base, r.Top)
		}
	}
	return s, nil
}

// sourceOf is source for a worktree of whichever origin. One that has begun has its
// repository still, and needs to find nothing.
func (m *Manager) sourceOf(ctx context.Context, rec *record, req Request) (*source, error) {
	if rec.Spec.Path != "" {
		return m.source(ctx, rec.Spec)
	}
	if rec.StartCommit != "" && rec.Repo != nil && isDir(rec.Repo.Common) {
		if tree, err := rec.Repo.at(m, nil).out(ctx, "rev-parse", "--verify", "--quiet", rec.StartCommit+"^{tree}"); err == nil {
			return &source{repo: rec.Repo, sub: rec.Sub, commit: rec.StartCommit, tree: tree}, nil
		}
	}
	if req.Origin == nil {
		return nil, errors.New("the workspace names no folder")
	}
	o, err := req.Origin(ctx)
	if err != nil {
		return nil, err
	}
	s := &source{commit: o.Commit, sub: o.Sub}
	if s.repo, err = m.findRepo(ctx, o.Repository); err != nil {
		return nil, err
	}
	if s.repo == nil || s.repo.Top != "" {
		return nil, fmt.Errorf("%s is not a bare repository", o.Repository)
	}
	g := s.repo.at(m, nil)
	if s.tree, err = g.out(ctx, "rev-parse", "--verify", s.commit+"^{tree}"); err != nil {
		return nil, fmt.Errorf("read commit %s: %w", s.commit, err)
	}
	if s.sub == "" {
		return s, nil
	}
	// Only a tree: a symbolic link would lead elsewhere.
	if kind, err := g.out(ctx, "cat-file", "-t", s.commit+":"+s.sub); err != nil || kind != "tree" {
		return nil, fmt.Errorf("folder %s does not exist in commit %s: an empty folder does not travel", s.sub, s.commit)
	}
	return s, nil
}
