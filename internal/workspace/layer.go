package workspace

import (
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

// layer is one patch of a stack.
type layer struct {
	job.Patch
	file  string      // the copy of the patch that is read
	how   []string    // arguments of git apply: where its paths lie, what is left out
	files []string    // every path that it reads or writes, relative to the tree
	moves [][2]string // old and new names of what it renames
	notes []string
}

// apply returns the arguments of a git apply of the patch.
func (l *layer) apply(args ...string) []string {
	return slices.Concat([]string{"apply"}, args, l.how, []string{"--", l.file})
}

// place is where a tree lies in its user's repository.
type place struct {
	folder string // of the job below the top of the tree, "" for the top
	within string // of the tree below the top of the repository, "" for the top
	path   string // as the user named it
}

func placeOf(rec *record) place {
	p := place{folder: rec.Sub, path: rec.Spec.Path}
	if rec.Spec.Isolation == job.Copy && rec.Repo != nil && rec.Repo.Top != "" {
		rel, err := filepath.Rel(realOrSame(rec.Repo.Top), realOrSame(rec.Spec.Path))
		if err == nil && rel != "." && filepath.IsLocal(rel) {
			p.within = filepath.ToSlash(rel)
		}
	}
	return p
}

// read reads which files a patch concerns. One that was made in a folder is
// about that folder of the tree; one of a repository, about the tree's part of
// that repository. Submodules are left out. The patch is copied to the new file
// first, and compared with its digest.
func (s *stack) read(ctx context.Context, p job.Patch, file string, at place) (*layer, error) {
	l := &layer{Patch: p, file: file}
	err := copyPatch(file, p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the patch of job %s is missing: %s; run that job again", p.Job, p.Path)
	}
	if changed := (*statedir.ChangedError)(nil); errors.As(err, &changed) {
		return nil, fmt.Errorf("the patch of job %s cannot be trusted: %w; run that job again", p.Job, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the patch of job %s: %w", p.Job, err)
	}
	head, err := readHead(file)
	if err != nil {
		return nil, fmt.Errorf("read the patch of job %s: %w", p.Job, err)
	}
	lines, err := s.list(ctx, "apply", "--numstat", "-z", "--", file)
	if err != nil {
		return nil, fmt.Errorf("read the patch of job %s: %w", p.Job, err)
	}
	switch {
	case head.folder && at.folder != "":
		l.how = []string{"--directory=" + at.folder}
	case !head.folder && at.within != "":
		l.how = []string{fmt.Sprintf("-p%d", 2+strings.Count(at.within, "/"))}
	}
	here := func(name string) (string, error) {
		if head.folder {
			name = filepath.Join(at.folder, name)
		} else if at.within != "" {
			inner, ok := strings.CutPrefix(name, at.within+"/")
			if !ok {
				return "", fmt.Errorf("the patch of job %s changes %s, which lies outside of %s; copy the whole repository, or use isolation worktree", p.Job, name, at.path)
			}
			name = inner
		}
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return "", fmt.Errorf("the patch of job %s leads out of the folder: %q", p.Job, name)
		}
		return name, nil
	}
	names := slices.Clone(head.renamed)
	var submodules []string
	for i, line := range lines {
		f := strings.SplitN(line, "\t", 3)
		switch {
		case len(f) != 3:
		case i < len(head.links) && head.links[i]:
			submodules = append(submodules, f[2])
		default:
			names = append(names, f[2])
		}
	}
	for _, n := range names {
		if n, err = here(n); err != nil {
			return nil, err
		}
		l.files = append(l.files, n)
	}
	for _, n := range submodules {
		if n, err = here(n); err != nil {
			return nil, err
		}
		l.how = append(l.how, "--exclude="+patternEscaper.Replace(n))
		l.notes = append(l.notes, fmt.Sprintf("submodule %s: the changes of job %s to it are not applied", n, p.Job))
	}
	for i, to := range head.become {
		if to, err = here(to); err != nil {
			return nil, err
		}
		l.moves = append(l.moves, [2]string{l.files[i], to})
	}
	slices.Sort(l.files)
	l.files = slices.Compact(l.files)
	return l, nil
}

var patternEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// identity is who commits what is not a user's own doing.
var identity = []string{
	"GIT_AUTHOR_NAME=agentsched", "GIT_AUTHOR_EMAIL=agentsched@localhost",
	"GIT_COMMITTER_NAME=agentsched", "GIT_COMMITTER_EMAIL=agentsched@localhost",
}

// commitPatch commits these files of the worktree of g, as they are, on top of
// parent. The ref keep of repo, where parent is, moves there. No hook and no filter of the repository runs: g
// is what checkOut returned.
func (g git) commitPatch(ctx context.Context, repo git, keep, parent string, of job.Name, files []string) (commit string, err error) {
	have, lack, err := sift(g.dir, files)
	if err != nil {
		return "", err
	}
	if err := g.feed(ctx, lack, "update-index", "-z", "--force-remove", "--stdin"); err != nil {
		return "", err
	}
	if err := g.feed(ctx, have, "update-index", "-z", "--add", "--replace", "--stdin"); err != nil {
		return "", err
	}
	tree, err := g.out(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	message := "patch of " + string(of)
	if commit, err = g.with(identity...).out(ctx, "commit-tree", tree, "-p", parent, "-m", message); err != nil {
		return "", err
	}
	return commit, repo.moveRef(ctx, keep, commit, parent, message)
}
