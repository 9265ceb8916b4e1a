package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// Applied is what Apply did.
type Applied struct {
	Files   []job.FileChange // relative to Root
	Root    string           // the repository's top or the folder
	Already bool             // everything was there already; nothing was written
}

// ConflictError says that a patch does not fit a folder, in which nothing was
// changed.
type ConflictError struct {
	Root   string
	Files  []string // relative to Root, sorted
	Detail string   // what git said
	// Head is the commit that is checked out there, "" without one. Own are those of
	// Files that are not as in Head.
	Head string
	Own  []string
}

func (e *ConflictError) Error() string {
	if len(e.Files) == 0 {
		return fmt.Sprintf("the patch does not apply to %s: %s", e.Root, e.Detail)
	}
	return fmt.Sprintf("the patch conflicts with %s in %s; nothing was changed", e.Root, strings.Join(e.Files, ", "))
}

// Apply brings a patch that Collect wrote into the user's folder target: the
// path that the job named. git reads a copy of the patch that was compared with
// its digest; see statedir.CopyArtifact. What the user has changed meanwhile is merged with
// it, committed or not, as long as the same lines are not concerned. Only
// working files change, so that the user sees the job's work as changes that
// are not staged. The error is a *ConflictError when the two cannot be merged
// and a *BusyError while a job works in the folder.
//
// The merge happens in a scratch git directory that sees the affected files
// alone; the folder is written to only after all of it has succeeded. A failure
// to write puts back what was there. A process killed among these writes leaves
// whole files, some old and some new, and none missing; applying again
// completes them, but for a rename that was half done, which is a conflict.
//
// Before are patches of jobs that this one's goes on from, the latest first, whose work it holds too. If one of them was applied
// to target, only what has come since is merged.
func (m *Manager) Apply(ctx context.Context, patch job.Patch, target string, before ...job.Patch) (Applied, error) {
	a, err := m.apply(ctx, patch, target, false, before...)
	if err != nil {
		return Applied{}, fmt.Errorf("apply %s: %w", patch.Path, err)
	}
	return a, nil
}

// apply with dry writes nothing.
func (m *Manager) apply(ctx context.Context, patch job.Patch, target string, dry bool, before ...job.Patch) (Applied, error) {
	if err := checkFolder(target); err != nil {
		return Applied{}, err
	}
	scratch, done, err := m.scratch(ctx)
	if err != nil {
		return Applied{}, fmt.Errorf("make a scratch folder: %w", err)
	}
	defer done()
	file := filepath.Join(scratch, "patch")
	if err := copyPatch(file, patch); err != nil {
		return Applied{}, err
	}
	head, err := readHead(file)
	if err != nil {
		return Applied{}, err
	}
	r, err := m.findRepo(ctx, target)
	if err != nil {
		return Applied{}, err
	}
	root := realOrSame(target)
	if r != nil && !head.folder {
		if r.Top == "" {
			return Applied{}, fmt.Errorf("%s is a bare repository, which has no files to change; merge the job's branch there instead", target)
		}
		root = realOrSame(r.Top)
	}
	lock, err := m.lockPath(root, useApply)
	if err != nil {
		return Applied{}, err
	}
	defer lock.Close()
	base := filepath.Join(scratch, "base")
	own, err := m.makeBase(ctx, base, root, r, nil)
	if err != nil {
		return Applied{}, fmt.Errorf("make a scratch git folder: %w", err)
	}
	lent, err := m.lendObjects(base, patch.Path)
	if err != nil {
		return Applied{}, err
	}
	in := m.baseGit(base, root, filepath.Join(scratch, "index"), nil).within(
		slices.Concat([]string{root}, reads(own, r), lent), append([]string{scratch}, lfsStorage(r)...))
	g := &merge{git: in, patch: file, root: root, scratch: scratch, head: head}
	names, err := g.names(ctx)
	if err != nil {
		return Applied{}, err
	}
	for i, p := range before {
		more, err := g.take(ctx, p, i)
		if err != nil {
			return Applied{}, err
		}
		names = append(names, more...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if _, err := g.checkFilters(ctx, own, r, names); err != nil {
		return Applied{}, err
	}
	applied, err := g.run(ctx, names, dry)
	if conflict := (*ConflictError)(nil); errors.As(err, &conflict) && r != nil && !head.folder && g.ours != "" {
		conflict.Head, conflict.Own = g.own(ctx, r, conflict.Files)
	}
	return applied, err
}

// own returns the commit that is checked out in r and those of the loaded files
// that are not as there; "" without one.
func (g *merge) own(ctx context.Context, r *repo, files []string) (head string, own []string) {
	head, err := git{m: g.m, dir: r.Top, held: g.held}.out(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if err != nil || len(files) == 0 {
		return head, nil
	}
	own, err = g.list(ctx, append([]string{"diff-tree", "-r", "-z", "--no-renames", "--name-only", head, g.ours, "--"}, files...)...)
	if err != nil {
		return head, nil
	}
	return head, own
}

func copyPatch(to string, p job.Patch) error {
	return statedir.CopyArtifact(to, job.Artifact{Name: job.ArtifactPatch, Path: p.Path, Bytes: p.Bytes, SHA256: p.SHA256})
}

// scratch makes a folder for one Apply and removes those of processes that
// were killed. A living one is known by the lock that its process holds on it.
func (m *Manager) scratch(ctx context.Context) (dir string, done func(), err error) {
	if err := os.MkdirAll(m.root, 0o700); err != nil {
		return "", nil, err
	}
	held, err := m.waitLock(ctx, "apply-", m.root)
	if err != nil {
		return "", nil, err
	}
	defer held.release()
	old, _ := filepath.Glob(filepath.Join(m.root, ".apply-*")) // the pattern is right
	for _, o := range old {
		if f, err := lockFolder(o); err == nil {
			_ = removeAll(o) // tried again next time
			f.Close()
		}
	}
	if dir, err = os.MkdirTemp(m.root, ".apply-"); err != nil {
		return "", nil, err
	}
	f, err := lockFolder(dir)
	if err != nil {
		return "", nil, err
	}
	return dir, func() { _ = removeAll(dir); f.Close() }, nil
}

func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// patchHead is what is read from a patch before git sees it.
type patchHead struct {
	folder  bool     // paths are relative to the folder, not the repository
	renamed []string // old names, which git apply --numstat does not tell
	become  []string // their new names
	removed []string // for each file in the order of the patch: "MODE BLOB" if it is deleted, else ""
	links   []bool   // likewise: whether it is a submodule
}

func readHead(path string) (patchHead, error) {
	var h patchHead
	f, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer f.Close()
	// Content lines begin with ' ', '+', '-' or '\', lines of binary patches
	// have no space, so no content passes for a header line.
	for b := bufio.NewReaderSize(f, 64<<10); ; {
		line, err := b.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		if line == headerFolder {
			h.folder = true
		}
		n := len(h.removed)
		switch {
		case strings.HasPrefix(line, "diff --git "):
			h.removed, h.links = append(h.removed, ""), append(h.links, false)
		case n > 0 && strings.HasPrefix(line, "deleted file mode "):
			h.removed[n-1] = strings.TrimPrefix(line, "deleted file mode ")
		case n > 0 && h.removed[n-1] != "" && strings.HasPrefix(line, "index "):
			blob, _, _ := strings.Cut(strings.TrimPrefix(line, "index "), "..")
			h.removed[n-1] += " " + blob
		}
		if n > 0 && linkLine.MatchString(line) {
			h.links[n-1] = true
		}
		for _, prefix := range []string{"rename from ", "copy from "} {
			if name, ok := strings.CutPrefix(line, prefix); ok {
				h.renamed = append(h.renamed, cUnquote(name))
			}
		}
		for _, prefix := range []string{"rename to ", "copy to "} {
			if name, ok := strings.CutPrefix(line, prefix); ok && len(h.become) < len(h.renamed) {
				h.become = append(h.become, cUnquote(name))
			}
		}
		if err == io.EOF {
			return h, nil
		}
		if err != nil {
			return h, err
		}
	}
}

// linkLine matches the lines of a patch's header that tell of a submodule.
var linkLine = regexp.MustCompile(`^(?:(?:old mode|new mode|new file mode|deleted file mode)|index [0-9a-f]+\.\.[0-9a-f]+) 160000$`)

// cUnquote undoes git's quoting of file names, which is Go's but for octal
// escapes being the rule.
func cUnquote(s string) string {
	if strings.HasPrefix(s, `"`) {
		if u, err := strconv.Unquote(s); err == nil {
			return u
		}
	}
	return s
}

// lendObjects lets base read the objects of the jobs that made the patches,
// while those exist: a patch against files that were never committed can be
// merged only with them.
func (m *Manager) lendObjects(base string, patches ...string) (lent []string, err error) {
	made, err := m.madeBy(patches)
	if err != nil {
		return nil, err
	}
	for _, rec := range made {
		f, err := os.OpenFile(filepath.Join(base, "objects", "info", "alternates"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		lent = append(lent, borrowed(filepath.Join(m.basePath(rec), "objects"))...)
		_, err = f.WriteString(cQuote(filepath.Join(m.basePath(rec), "objects")) + "\n")
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, err
		}
	}
	return lent, nil
}

// madeBy returns the workspaces whose last collected patch is one of these files.
func (m *Manager) madeBy(patches []string) ([]*record, error) {
	wanted := map[string]bool{}
	for _, p := range patches {
		wanted[realOrSame(p)] = true
	}
	homes, err := os.ReadDir(m.root)
	if err != nil {
		return nil, err
	}
	var made []*record
	for _, e := range homes {
		if rec, err := m.readRecord(job.ID(e.Name())); err == nil && rec.Saved != nil && wanted[rec.Saved.Patch] {
			made = append(made, rec)
		}
	}
	return made, nil
}

// merge merges one patch into one folder.
type merge struct {
	git
	patch, root, scratch string
	head                 patchHead
	earlier              []string // patches whose work this one holds too, the latest first
	ours                 string   // the tree of the user's files, once they are loaded
	removed              []string // what the patch deletes, as update-index --index-info wants it
}

func (g *merge) run(ctx context.Context, names []string, dry bool) (Applied, error) {
	done := Applied{Root: g.root}
	ours, err := g.load(ctx, names)
	if err != nil {
		return done, err
	}
	g.ours = ours
	before := filepath.Join(g.scratch, "before")
	if err := copyIndex(g.index(), before); err != nil && !os.IsNotExist(err) {
		return done, err
	}
	if err := g.takeBack(ctx); err != nil {
		return done, err
	}
	if err := g.pretendRemoved(ctx); err != nil {
		return done, err
	}
	if _, err := g.out(ctx, "apply", "--3way", "--cached", "--", g.patch); err != nil {
		failed := (*gitError)(nil)
		if !errors.As(err, &failed) {
			return done, err
		}
		conflict, err := g.conflict(ctx, failed)
		if err != nil {
			return done, err
		}
		// A file that was renamed or deleted by an earlier Apply does not merge.
		if _, err := g.with("GIT_INDEX_FILE="+before).out(ctx, "apply", "--check", "--reverse", "--cached", "--", g.patch); err == nil {
			done.Already = true
			return done, nil
		}
		return done, conflict
	}
	result, err := g.out(ctx, "write-tree")
	if err != nil {
		return done, err
	}
	if result == ours {
		done.Already = true
		return done, nil
	}
	words, err := g.list(ctx, "diff-tree", "-r", "-z", "-M", "--name-status", ours, result)
	if err != nil {
		return done, err
	}
	done.Files = fileChanges(words)
	if dry {
		return done, nil
	}
	return done, g.write(ctx, names, ours, result)
}

// take takes up a patch whose work this one holds too, and returns every path of it. One that is gone, or of another kind of
// folder, is left out.
func (g *merge) take(ctx context.Context, p job.Patch, n int) ([]string, error) {
	file := filepath.Join(g.scratch, fmt.Sprintf("before-%d", n))
	if err := copyPatch(file, p); err != nil {
		return nil, nil
	}
	head, err := readHead(file)
	if err != nil || head.folder != g.head.folder {
		return nil, err
	}
	other := &merge{git: g.git, patch: file, head: head}
	names, err := other.names(ctx)
	if err == nil {
		g.earlier = append(g.earlier, file)
	}
	return names, err
}

// takeBack takes the latest of the earlier patches that was applied out of the index: what this one adds to it merges with
// what was there before.
func (g *merge) takeBack(ctx context.Context) error {
	for _, p := range g.earlier {
		_, err := g.out(ctx, "apply", "--reverse", "--cached", "--", p)
		if failed := (*gitError)(nil); err == nil || !errors.As(err, &failed) {
			return err
		}
	}
	return nil
}

// names returns every path that the patch reads or writes.
func (g *merge) names(ctx context.Context) ([]string, error) {
	lines, err := g.list(ctx, "apply", "--numstat", "-z", "--", g.patch)
	if err != nil {
		return nil, fmt.Errorf("read the patch: %w", err)
	}
	names := slices.Clone(g.head.renamed)
	for i, l := range lines {
		if f := strings.SplitN(l, "\t", 3); len(f) == 3 {
			names = append(names, f[2])
			if i < len(g.head.removed) && g.head.removed[i] != "" {
				g.removed = append(g.removed, g.head.removed[i]+"\t"+f[2])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// load puts the user's files of these names into the index, which must be
// empty, and returns their tree.
func (g *merge) load(ctx context.Context, names []string) (tree string, err error) {
	var have []string
	for _, n := range names {
		if !filepath.IsLocal(filepath.FromSlash(n)) {
			return "", fmt.Errorf("the patch leads out of the folder: %q", n)
		}
		info, err := os.Lstat(filepath.Join(g.root, n))
		if err == nil && (info.Mode().IsRegular() || info.Mode()&os.ModeSymlink != 0) {
			have = append(have, n)
		}
	}
	missed, err := g.put(ctx, have)
	if err != nil {
		return "", err
	}
	if len(missed) > 0 { // unreadable, or behind a symbolic link
		c := &ConflictError{Root: g.root, Detail: missed[0]}
		for _, m := range missed {
			name, _ := strconv.QuotedPrefix(m)
			c.Files = append(c.Files, cUnquote(name))
		}
		return "", c
	}
	return g.out(ctx, "write-tree")
}

// pretendRemoved puts back into the index what both the patch and the user have
// deleted, as it was: git refuses to delete a file twice.
func (g *merge) pretendRemoved(ctx context.Context) error {
	var missing []string
	for _, r := range g.removed {
		_, name, _ := strings.Cut(r, "\t")
		if _, err := os.Lstat(filepath.Join(g.root, name)); err == nil || strings.HasPrefix(r, "160000 ") {
			continue
		}
		missing = append(missing, r)
	}
	return g.feed(ctx, missing, "update-index", "-z", "--index-info")
}

// conflict names the files at which git gave up.
func (g *merge) conflict(ctx context.Context, failed *gitError) (*ConflictError, error) {
	c := &ConflictError{Root: g.root, Detail: failed.stderr}
	unmerged, err := g.list(ctx, "ls-files", "-u", "-z")
	if err != nil {
		return nil, err
	}
	for _, e := range unmerged {
		_, name, _ := strings.Cut(e, "\t")
		c.Files = append(c.Files, name)
	}
	for _, match := range applyComplaint.FindAllStringSubmatch(failed.stderr, -1) {
		c.Files = append(c.Files, match[1])
	}
	slices.Sort(c.Files)
	c.Files = slices.Compact(c.Files)
	return c, nil
}

// applyComplaint matches what builtin apply.c says of one file (in English:
// LC_ALL is C).
var applyComplaint = regexp.MustCompile(`(?m)^error: (.+?): (?:does not exist in index|already exists in index|patch does not apply|does not match index|wrong type|No such file or directory|cannot read the current contents.*|removal patch leaves file contents)$`)
