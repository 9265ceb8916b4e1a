package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Command is one git command, which runs as those of this package do: without
// hooks, questions, transports and what else a configuration could make it run.
type Command struct {
	Dir  string   // working directory
	Env  []string // NAME=VALUE, added to the environment that is left
	Args []string // without "git"
	In   io.Reader
	Out  io.Writer
	Held []*os.File // locks that live on while the command does
	// Read and Write are what it is confined to; see Config.Confined. Without either it
	// runs as the user.
	Read, Write []string
}

// Git runs a command to its end. The error says what git printed, or is the
// context's cause.
func (m *Manager) Git(ctx context.Context, c Command) error {
	g := git{m: m, dir: c.Dir, env: c.Env, held: c.Held}
	if c.Read != nil || c.Write != nil {
		g = g.within(c.Read, c.Write)
	}
	return g.run(ctx, c.In, c.Out, c.Args...)
}

// Snapshot is what a folder of the user's holds, in a git directory of ours that
// borrows the objects of its repository.
type Snapshot struct {
	Top    string // of the repository's working tree
	Sub    string // the folder below it, with slashes; "" for the top
	Format string // sha1 or sha256
	Head   string // the commit that is checked out, "" for a repository without one
	// Tree is that of the working tree: what is tracked or neither tracked nor
	// ignored. "" where only Look was asked.
	Tree    string
	GitDir  string
	Shallow []string // the commits at which the history of a shallow clone ends
	// Notes tell what of the working tree is not in Tree.
	Notes []string

	m    *Manager
	repo *repo
}

// Look finds the repository of the folder path, and makes a git directory at dir,
// which must not exist. It changes nothing in the repository.
func (m *Manager) Look(ctx context.Context, path, dir string) (*Snapshot, error) {
	s, _, err := m.look(ctx, path, dir)
	return s, err
}

func (m *Manager) look(ctx context.Context, path, dir string) (*Snapshot, *repoConfig, error) {
	if err := m.checkGit(ctx); err != nil {
		return nil, nil, err
	}
	if err := checkFolder(path); err != nil {
		return nil, nil, err
	}
	if err := m.checkOutside(job.Workspace{Path: path, Isolation: job.Copy}); err != nil {
		return nil, nil, err
	}
	r, err := m.findRepo(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	if r == nil {
		return nil, nil, fmt.Errorf("%s is not a git repository; run `git init` in it, or name a folder of one", path)
	}
	if r.Top == "" {
		return nil, nil, fmt.Errorf("%s is a bare repository, which has no working tree; name a clone of it", path)
	}
	s := &Snapshot{Top: realOrSame(r.Top), Format: r.Format, GitDir: dir, m: m, repo: r}
	sub, err := filepath.Rel(s.Top, realOrSame(path))
	if err != nil {
		return nil, nil, fmt.Errorf("find %s in its repository %s: %w", path, r.Top, err)
	}
	if sub != "." {
		s.Sub = filepath.ToSlash(sub)
	}
	g := git{m: m, dir: s.Top}
	if name, err := g.out(ctx, "rev-parse", "--verify", "--quiet", "HEAD"); err == nil {
		if s.Head, err = g.out(ctx, "rev-parse", "--verify", name+"^{commit}"); err != nil {
			return nil, nil, fmt.Errorf("read the commit %s of %s: %w", name, s.Top, m.explain(ctx, r, err))
		}
	} else if ctx.Err() != nil {
		return nil, nil, err
	} else if _, err := g.out(ctx, "symbolic-ref", "--quiet", "HEAD"); err != nil {
		return nil, nil, fmt.Errorf("HEAD of %s names no commit; check out a branch", s.Top)
	}
	own, err := m.makeBase(ctx, dir, s.Top, r, nil)
	if err != nil {
		return nil, nil, err
	}
	shallow, err := readSmall(filepath.Join(r.Common, "shallow"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, own, nil
	}
	if err == nil {
		s.Shallow = strings.Fields(shallow)
		err = os.WriteFile(filepath.Join(dir, "shallow"), []byte(shallow), 0o600)
	}
	return s, own, err
}

// Snapshot does what Look does, and puts the working tree into the git directory.
// Neither the repository's index nor anything else in it is changed. No filter but
// git's own conversions runs: files that would be given to another are taken as they
// are. bound hears of each file that is read because it differs from the repository's
// index, by its path below the top and its size in bytes; its error ends the snapshot.
func (m *Manager) Snapshot(ctx context.Context, path, dir string, bound func(path string, size int64) error) (*Snapshot, error) {
	s, own, err := m.look(ctx, path, dir)
	if err != nil {
		return nil, err
	}
	attributes, err := os.OpenFile(filepath.Join(dir, "info", "attributes"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = attributes.WriteString("\n* -filter\n")
	if cerr := attributes.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	g := m.baseGit(dir, s.Top, filepath.Join(dir, "snapshot.index"), nil)
	g.bound = bound
	if err := s.takeIndex(ctx, g, own.sparse()); err != nil {
		return nil, fmt.Errorf("read the index of %s: %w", s.Top, m.explain(ctx, s.repo, err))
	}
	tree, missed, err := g.snapshot(ctx, "", &s.Notes)
	if err != nil {
		return nil, m.explain(ctx, s.repo, err)
	}
	for _, f := range missed {
		s.Notes = append(s.Notes, "not carried: "+f)
	}
	if own.sparse() {
		s.Notes = append(s.Notes, "the checkout is sparse: the files that it leaves out are carried as they are in the index")
	}
	s.Tree = tree
	return s, nil
}

// takeIndex makes the index of g one like the repository's: a copy, or, if that has a
// form which cannot be copied alone, one with the same entries, for which every file
// is read.
func (s *Snapshot) takeIndex(ctx context.Context, g git, sparse bool) error {
	user := git{m: s.m, dir: s.Top}
	index, err := plainIndex(ctx, user)
	if err != nil {
		return err
	}
	if index != "" && !sparse {
		err := copyIndex(index, g.index())
		if err == nil {
			err = unhide(g.index(), s.Top, false, s.repo.hash)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // nothing was ever staged
		}
		if err != nil {
			return err
		}
		if _, err := os.Stat(g.index()); err == nil {
			return nil
		}
	}
	var entries bytes.Buffer
	if err := user.run(ctx, nil, &entries, "ls-files", "-z", "--stage"); err != nil {
		return err
	}
	if err := g.run(ctx, &entries, nil, "update-index", "-z", "--index-info"); err != nil {
		return err
	}
	if !sparse {
		return nil
	}
	hidden, err := user.list(ctx, "ls-files", "-z", "-t")
	if err != nil {
		return err
	}
	var skip []string
	for _, e := range hidden { // "S PATH" are those that the sparse checkout leaves out
		if name, ok := strings.CutPrefix(e, "S "); ok {
			if _, err := os.Lstat(filepath.Join(s.Top, name)); err != nil {
				skip = append(skip, name)
			}
		}
	}
	return g.feed(ctx, skip, "update-index", "-z", "--skip-worktree", "--stdin")
}

// Explain adds to an error of a command in GitDir what to do when it comes of
// objects that a partial clone lacks.
func (s *Snapshot) Explain(ctx context.Context, err error) error {
	return s.m.explain(ctx, s.repo, err)
}

// bounded asks g.bound for each of these files.
func (g git) bounded(paths []string) error {
	if g.bound == nil {
		return nil
	}
	for _, p := range paths {
		info, err := os.Lstat(filepath.Join(g.dir, p))
		if err != nil {
			continue // it is gone, which the index hears of
		}
		if err := g.bound(p, info.Size()); err != nil {
			return err
		}
	}
	return nil
}
