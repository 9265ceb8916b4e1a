package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// stack applies the patches of other jobs to a tree that was just made and that
// no worker has been in, one on top of the other. Like git am -3 it builds from
// each patch the files that it was made against and those that it makes of
// them, and merges the difference into the tree.
//
// It sees the files that the patches name and no others, in a scratch git
// directory which borrows the objects of the jobs that made the patches. The
// workspace itself keeps nothing of them: its start is a snapshot taken
// afterwards, so that those jobs may be removed.
type stack struct {
	git     // of the scratch folder
	root    string
	scratch string
	files   []string              // that the patches name
	start   []string              // these files at first, as ls-files -s tells them
	changed map[string][]job.Name // by which patches so far
	clashes []Clash
}

// applyPatches applies req.Patches to the tree of rec. After each of them it
// calls applied with the paths that may have changed, relative to the tree.
func (m *Manager) applyPatches(ctx context.Context, rec *record, req Request, held heldLocks, applied func(job.Name, []string) error) error {
	patches := slices.DeleteFunc(slices.Clone(req.Patches), func(p job.Patch) bool { return p.Path == "" })
	if len(patches) == 0 {
		return nil
	}
	scratch, done, err := m.scratch(ctx)
	if err != nil {
		return fmt.Errorf("make a scratch folder: %w", err)
	}
	defer done()
	base := filepath.Join(scratch, "base")
	own, err := m.makeBase(ctx, base, m.tree(rec), rec.Repo, held)
	if err != nil {
		return fmt.Errorf("make a scratch git folder: %w", err)
	}
	g := m.baseGit(base, m.tree(rec), filepath.Join(scratch, "index"), held).with(identity...)
	s := &stack{
		git:  g.within(reads(own, rec.Repo), append([]string{scratch, m.tree(rec)}, lfsStorage(rec.Repo)...)),
		root: m.tree(rec), scratch: scratch, changed: map[string][]job.Name{},
	}
	var layers []*layer
	var paths []string
	for i, p := range patches {
		l, err := s.read(ctx, p, filepath.Join(scratch, fmt.Sprintf("patch-%d", i)), placeOf(rec))
		if err != nil {
			return err
		}
		rec.Notes = append(rec.Notes, l.notes...)
		layers, paths, s.files = append(layers, l), append(paths, p.Path), append(s.files, l.files...)
	}
	lent, err := m.lendObjects(base, paths...)
	if err != nil {
		return err
	}
	s.git = s.also(lent...)
	if err := s.load(ctx); err != nil {
		return err
	}
	if s.start, err = s.list(ctx, "ls-files", "-s", "-z"); err != nil {
		return err
	}
	for _, l := range layers {
		touched, err := s.apply(ctx, l)
		if err != nil {
			return fmt.Errorf("apply the patch of job %s, %s: %w", l.Job, l.Path, err)
		}
		if len(s.clashes) > 0 && req.OnConflict != job.ResolveConflict {
			return &PatchesError{Clashes: s.clashes}
		}
		if err := applied(l.Job, touched); err != nil {
			return err
		}
	}
	rec.Clashes = s.clashes
	return nil
}

// load makes the index hold the named files as they are in the tree.
func (s *stack) load(ctx context.Context) error {
	slices.Sort(s.files)
	s.files = slices.Compact(s.files)
	if err := removeFile(s.index()); err != nil {
		return err
	}
	have, _, err := sift(s.root, s.files)
	if err != nil {
		return err
	}
	return s.feed(ctx, have, "update-index", "-z", "--add", "--replace", "--stdin")
}

// sift tells which of these paths are files or symbolic links of the tree root,
// reached through no symbolic link.
func sift(root string, paths []string) (have, lack []string, err error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	for _, p := range paths {
		info, err := r.Lstat(p)
		if err == nil && (info.Mode().IsRegular() || info.Mode()&os.ModeSymlink != 0) && !behindLink(r, p) {
			have = append(have, p)
		} else {
			lack = append(lack, p)
		}
	}
	return have, lack, nil
}

func behindLink(r *os.Root, path string) bool {
	for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
		if info, err := r.Lstat(dir); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// apply merges one patch into the tree and returns the paths that may have
// changed. What does not fit is added to the clashes.
func (s *stack) apply(ctx context.Context, l *layer) (touched []string, err error) {
	before, after, err := s.sides(ctx, l)
	if failed := (*gitError)(nil); errors.As(err, &failed) && failed.code > 0 {
		err = s.patch(ctx, l)
	} else if err == nil {
		err = s.merge(ctx, l, before, after)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range l.files {
		s.changed[f] = append(s.changed[f], l.Job)
	}
	return append(slices.Clone(l.files), s.clashing(l.Job)...), nil
}

// sides returns the trees of what the patch was made against and of what it
// makes of that. A *gitError says that this is not known any more.
func (s *stack) sides(ctx context.Context, l *layer) (before, after string, err error) {
	entries, err := s.known(ctx, l)
	if err != nil {
		return "", "", err
	}
	known, err := s.indexOf(ctx, "known", entries)
	if err != nil {
		return "", "", err
	}
	fake := s.with("GIT_INDEX_FILE=" + filepath.Join(s.scratch, "fake"))
	if err := removeFile(fake.index()); err != nil {
		return "", "", err
	}
	if _, err := known.out(ctx, l.apply("--build-fake-ancestor="+fake.index())...); err != nil {
		return "", "", err
	}
	if entries, err = fake.list(ctx, "ls-files", "-s", "-z"); err != nil {
		return "", "", err
	}
	// The files of other patches are on both sides as they were at the start: else
	// git would take those that changed since for new ones, and new ones for
	// others that were renamed.
	side, err := s.indexOf(ctx, "side", slices.Concat(s.startBut(l.files), entries))
	if err != nil {
		return "", "", err
	}
	if before, err = side.out(ctx, "write-tree"); err != nil {
		return "", "", err
	}
	if _, err := side.out(ctx, l.apply("--cached")...); err != nil {
		return "", "", err
	}
	after, err = side.out(ctx, "write-tree")
	return before, after, err
}

// startBut returns the index entries of the start but those of some files.
func (s *stack) startBut(files []string) (entries []string) {
	for _, e := range s.start {
		_, name, _ := strings.Cut(e, "\t")
		if _, of := slices.BinarySearch(files, name); !of {
			entries = append(entries, e)
		}
	}
	return entries
}

// indexOf makes an index of entries as ls-files -s tells them, of which later
// ones replace earlier ones, and returns a git that uses it.
func (s *stack) indexOf(ctx context.Context, name string, entries []string) (git, error) {
	g := s.with("GIT_INDEX_FILE=" + filepath.Join(s.scratch, name))
	if err := removeFile(g.index()); err != nil {
		return g, err
	}
	return g, g.feed(ctx, entries, "update-index", "-z", "--replace", "--index-info")
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// known returns index entries, of which later ones replace earlier ones. A
// patch that only renames a file, or changes its mode, does not say what is in
// it: git takes the file of the index. An earlier patch may have removed that;
// then it is the file of the start, or the one that has its new name already.
func (s *stack) known(ctx context.Context, l *layer) ([]string, error) {
	now, err := s.list(ctx, "ls-files", "-s", "-z")
	if err != nil {
		return nil, err
	}
	all := slices.Concat(s.start, now)
	contents := map[string]string{} // by name
	for _, e := range all {
		content, name, _ := strings.Cut(e, "\t")
		contents[name] = content
	}
	for _, move := range l.moves {
		if there, ok := contents[move[1]]; ok && contents[move[0]] == "" {
			all = append(all, there+"\t"+move[0])
		}
	}
	return all, nil
}

// patch brings a patch into the tree and the index by its context alone, or not
// at all: what it was made against is not there any more.
func (s *stack) patch(ctx context.Context, l *layer) error {
	_, err := s.out(ctx, l.apply("--index")...)
	failed := (*gitError)(nil)
	if !errors.As(err, &failed) || failed.code <= 0 {
		return err
	}
	e := &PatchesError{Detail: "it cannot be merged, because objects that it was made against are missing: " + failed.stderr}
	for _, f := range l.files {
		e.Clashes = append(e.Clashes, Clash{Path: f, Job: l.Job, With: s.changed[f]})
	}
	return e
}

// merge brings the difference of before and after into the tree and the index.
func (s *stack) merge(ctx context.Context, l *layer, before, after string) error {
	ours, err := s.out(ctx, "write-tree")
	if err != nil || before == after || ours == after {
		return err
	}
	g := s.with("GITHEAD_"+ours+"="+s.label(l), "GITHEAD_"+after+"=job "+string(l.Job))
	_, err = g.out(ctx, "-c", "merge.directoryRenames=false", "merge-recursive", before, "--", ours, after)
	if failed := (*gitError)(nil); err == nil || !errors.As(err, &failed) || failed.code != 1 {
		return err
	}
	unmerged, err := s.list(ctx, "ls-files", "-u", "-z")
	if err != nil {
		return err
	}
	var names []string
	for _, e := range unmerged {
		_, name, _ := strings.Cut(e, "\t")
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	root, err := os.OpenRoot(s.root)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, n := range names {
		marked, err := isMarked(root, n)
		if err != nil {
			return err
		}
		s.clashes = append(s.clashes, Clash{Path: n, Job: l.Job, With: s.changed[n], Marked: marked})
	}
	// From here on what is in the files is what the next patch is applied to.
	s.files = append(s.files, names...)
	return s.load(ctx)
}

// label is what stands at the marks of what was there before a patch.
func (s *stack) label(l *layer) string {
	var jobs []string
	for _, f := range l.files {
		for _, j := range s.changed[f] {
			if !slices.Contains(jobs, "job "+string(j)) {
				jobs = append(jobs, "job "+string(j))
			}
		}
	}
	if len(jobs) == 0 {
		return "workspace"
	}
	return strings.Join(jobs, ", ")
}

// clashing returns the files in which the patch of a job clashed.
func (s *stack) clashing(name job.Name) (files []string) {
	for _, c := range s.clashes {
		if c.Job == name {
			files = append(files, c.Path)
		}
	}
	return files
}
