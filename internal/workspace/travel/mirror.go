package travel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
)

// Mirrors are the mirrors of a node, in one folder:
//
//	KEY.lock            the lock of a mirror, never deleted
//	KEY/                a bare repository
//	  kept/COMMIT       one for each commit that was taken; its content is the base, its
//	                    modification time the last use. A ref refs/kept/COMMIT goes with it
//	  checkouts/NAME    one for each checkout; its content is the commit and the path. A
//	                    ref refs/checkouts/NAME goes with it
//	  called            the name by which Names lists it; its modification time is the last use
//	  pruned            its modification time is when PruneDaily did something last
//	  incoming-*        what is being taken, or was when the process died
type Mirrors struct {
	Workspaces *workspace.Manager
	Dir        string // absolute; made when missing
	Limits     Limits
	Now        func() time.Time // nil is time.Now
}

// plain switches off the user's files that git reads without being told.
var plain = []string{"-c", "core.excludesFile=/dev/null", "-c", "core.attributesFile=/dev/null"}

// Mirror is the repository of one key.
type Mirror struct {
	*Mirrors
	key    Key
	format string
	dir    string
}

// isolated keeps the configuration of the node's user and system away from mirrors and
// checkouts, and bounds what one object may claim of memory.
var isolated = []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_ALLOC_LIMIT=1g"}

// Open returns the mirror of what a submitter's folder belongs to. It is made when
// missing.
func (s *Mirrors) Open(ctx context.Context, owner string, id Identity) (*Mirror, error) {
	return s.open(ctx, id.Key(owner), id.Format, id.Shallow)
}

// OpenRemote returns the mirror of the repository at an address. It is made when
// missing, which asks the remote of which format its ids are.
func (s *Mirrors) OpenRemote(ctx context.Context, owner string, r Remote) (*Mirror, error) {
	if err := job.ValidRepo(r.URL); err != nil {
		return nil, err
	}
	key := URLKey(owner, r.URL)
	m := &Mirror{Mirrors: s, key: key, dir: filepath.Join(s.Dir, string(key))}
	var err error
	if _, there := os.Stat(m.dir); there == nil {
		m.format, err = m.git().out(ctx, "rev-parse", "--show-object-format")
		return m, err
	}
	if m.format, err = s.formatOf(ctx, r); err != nil {
		return nil, fmt.Errorf("ask %s: %w", job.RedactURL(r.URL), explain(err))
	}
	return s.open(ctx, key, m.format, nil)
}

// formatOf asks a remote of which format its ids are.
func (s *Mirrors) formatOf(ctx context.Context, r Remote) (string, error) {
	git := (&Mirror{Mirrors: s}).far(ctx, r)
	git.dir = os.TempDir()
	first := &firstLine{}
	err := git.with("GIT_DIR=/dev/null").run(ctx, nil, first, "ls-remote", "--quiet", "--", r.URL)
	id, _, _ := strings.Cut(string(first.text), "\t")
	switch {
	case isID("sha1", id):
		return "sha1", nil
	case isID("sha256", id):
		return "sha256", nil
	case err != nil:
		return "", err
	}
	return "", errors.New("it has no commit yet")
}

// firstLine keeps the first bytes that are written, and refuses the rest.
type firstLine struct{ text []byte }

func (f *firstLine) Write(p []byte) (int, error) {
	const most = 100
	if len(f.text) >= most {
		return 0, errors.New("that is enough")
	}
	f.text = append(f.text, p[:min(len(p), most-len(f.text))]...)
	return len(p), nil
}

func (s *Mirrors) open(ctx context.Context, key Key, format string, shallow []string) (*Mirror, error) {
	if format != "sha1" && format != "sha256" {
		return nil, fmt.Errorf("open a mirror: the format is %q, want sha1 or sha256", format)
	}
	for _, id := range shallow {
		if !isID(format, id) {
			return nil, fmt.Errorf("open a mirror: shallow is %q, want a full id of %s", id, format)
		}
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	m := &Mirror{Mirrors: s, key: key, format: format, dir: filepath.Join(s.Dir, string(key))}
	held, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer held.release()
	if _, err := os.Stat(m.dir); err == nil {
		return m, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// What a process that died has left is made anew.
	next := m.dir + ".next"
	if err := os.RemoveAll(next); err != nil {
		return nil, err
	}
	g := m.git().under(held)
	g.dir, g.write = s.Dir, nil // nobody else has written there
	if err := g.with("GIT_DIR="+next).run(ctx, nil, nil, "init", "--quiet", "--bare", "--template=", "--object-format="+format); err != nil {
		return nil, fmt.Errorf("make the mirror %s: %w", m.dir, err)
	}
	for _, sub := range []string{"kept", "checkouts"} {
		if err := os.Mkdir(filepath.Join(next, sub), 0o700); err != nil {
			return nil, err
		}
	}
	if len(shallow) > 0 {
		if err := os.WriteFile(filepath.Join(next, "shallow"), []byte(strings.Join(shallow, "\n")+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	return m, os.Rename(next, m.dir)
}

// Key returns the mirror's key.
func (m *Mirror) Key() Key { return m.key }

// Repository returns the folder of the mirror, a bare repository.
func (m *Mirror) Repository() string { return m.dir }

func (m *Mirror) lock(ctx context.Context) (lock, error) {
	held, err := takeLock(ctx, filepath.Join(m.Dir, string(m.key)+".lock"))
	if err != nil {
		return nil, err
	}
	if err := m.unlock(); err != nil {
		held.release()
		return nil, err
	}
	return held, nil
}

// unlock removes what a git that was killed has left. The caller holds the lock, under
// which no other git touches what is ours alone; what workspaces of the mirror touch
// too has to be old.
func (m *Mirror) unlock() error {
	for pattern, age := range map[string]time.Duration{
		"refs/kept/*.lock": 0, "refs/checkouts/*.lock": 0, fetchedRef + ".lock": 0, fetchedRef: 0,
		"*.lock": staleLock, "refs/*.lock": staleLock, "objects/pack/tmp_*": staleAfter,
	} {
		stale, _ := filepath.Glob(filepath.Join(m.dir, pattern)) // the pattern is right
		for _, path := range stale {
			if info, err := os.Lstat(path); err != nil || age > 0 && m.now().Sub(info.ModTime()) < age {
				continue
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// staleLock is how old a lock of git's is that nobody holds: they are held for
// milliseconds.
const staleLock = time.Minute

func (m *Mirror) git() repository {
	return repository{m: m.Workspaces, dir: m.dir, env: isolated, args: plain, write: []string{m.dir}}
}

func (s *Mirrors) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// kept is a commit that the mirror was given.
type kept struct {
	commit, base string
	used         time.Time
}

// listKept returns what the mirror was given, the last used first.
func (m *Mirror) listKept() ([]kept, error) {
	entries, err := os.ReadDir(filepath.Join(m.dir, "kept"))
	if err != nil {
		return nil, err
	}
	var all []kept
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !isID(m.format, e.Name()) {
			continue // it was dropped just now
		}
		base, err := os.ReadFile(filepath.Join(m.dir, "kept", e.Name()))
		if err != nil {
			continue
		}
		all = append(all, kept{e.Name(), string(base), info.ModTime()})
	}
	slices.SortStableFunc(all, func(a, b kept) int { return b.used.Compare(a.used) })
	return all, nil
}

// keep remembers a commit and its base, or that it was used. The caller holds the lock.
func (m *Mirror) keep(ctx context.Context, held lock, commit, base string) error {
	if err := m.git().under(held).run(ctx, nil, nil, "update-ref", "refs/kept/"+commit, commit); err != nil {
		return err
	}
	path := filepath.Join(m.dir, "kept", commit)
	if err := os.WriteFile(path+".tmp", []byte(base), 0o600); err != nil {
		return err
	}
	if err := os.Chtimes(path+".tmp", m.now(), m.now()); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// maxHas bounds what Has lists.
const maxHas = 512

// Has lists commits that the mirror has with all that they need, the last used first, at most 512:
// those that were checked out on submitters' hosts, and those with what was not
// committed there.
func (m *Mirror) Has(context.Context) ([]string, error) {
	all, err := m.listKept()
	if err != nil {
		return nil, err
	}
	var has []string
	add := func(id string) {
		if id != "" && len(has) < maxHas && !slices.Contains(has, id) {
			has = append(has, id)
		}
	}
	for _, k := range all {
		add(k.base)
		add(k.commit)
	}
	return has, nil
}
