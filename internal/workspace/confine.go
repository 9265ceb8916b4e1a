package workspace

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Which git commands are confined (Config.Confined), that is, run by the policy of
// runs and not as the user:
//
//   - all that compare a workspace with its start, and commit or pack what it holds
//     (present.git): they read files that an agent wrote, and run trusted filters on
//     them;
//   - all that read a patch or apply it, in a scratch git directory (stack, merge),
//     and then commit it to a new worktree, or take the snapshot that it begins with;
//   - all that read the objects of an agent's commits (importCommits), and the one
//     that takes them, or the pack of a commit of ours, into the user's repository
//     (takePack).
//
// As the user run, in the user's repository or in a git directory just made, and not
// on files of a workspace: rev-parse, for-each-ref, update-ref, show-ref, branch,
// config, cat-file, merge-base, init; read-tree of the user's own commit into a new
// worktree; and the first snapshot of a folder that no agent has been in.

// reach is what a confined git command is granted, beside the system's own files.
type reach struct{ read, write []string }

// within returns g confined to what it is granted.
func (g git) within(read, write []string) git {
	g.reach = &reach{read: read, write: write}
	return g
}

// also returns g with more that it may read, if it is confined.
func (g git) also(read ...string) git {
	if g.reach != nil {
		g = g.within(slices.Concat(g.reach.read, read), g.reach.write)
	}
	return g
}

// reads returns what git reads of the user's when it works in a git directory that
// borrows the objects of r: the files of the user's configuration, and objects.
// r may be nil.
func reads(own *repoConfig, r *repo) []string {
	all := slices.DeleteFunc(slices.Clone(own.files), func(p string) bool { return p == "" })
	if r != nil {
		all = append(all, borrowed(r.Objects)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// readsOf returns what a git that looks at rec's workspace reads of the user's. The
// job's private git directory has to be there.
func (m *Manager) readsOf(ctx context.Context, rec *record, held heldLocks) ([]string, error) {
	if len(rec.Reads) > 0 || m.confined == nil {
		return rec.Reads, nil
	}
	own, err := m.readConfig(ctx, &repo{Common: m.basePath(rec)}, held)
	if err != nil {
		return nil, err
	}
	return reads(own, rec.Repo), nil
}

// userConfigFiles returns where git looks for the user's configuration.
func userConfigFiles() (files []string) {
	for _, name := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		if path := configFile(os.Getenv(name)); path != "" {
			files = append(files, path)
		}
	}
	files = append(files, configFile("~/.gitconfig"))
	if config := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(config) {
		return append(files, filepath.Join(config, "git"))
	}
	return append(files, configFile("~/.config/git"))
}

// lfsStorage is where the filters of git-lfs keep what they have downloaded and
// what they make.
func lfsStorage(r *repo) []string {
	if r == nil || !isDir(filepath.Join(r.Common, "lfs")) {
		return nil
	}
	return []string{filepath.Join(r.Common, "lfs")}
}

// borrowed returns an object store and those that it borrows from, as git follows
// them: objects/info/alternates, five deep.
func borrowed(objects string) (all []string) {
	const deepest, most = 5, 100
	level := []string{objects}
	for range deepest + 1 {
		var next []string
		for _, dir := range level {
			for _, form := range []string{dir, realOrSame(dir)} { // both have to exist in the run
				if len(all) < most && !slices.Contains(all, form) {
					all = append(all, form)
				}
			}
			text, err := readSmall(filepath.Join(dir, "info", "alternates"))
			if err != nil {
				continue // most have none
			}
			for line := range strings.Lines(text) {
				if line = cUnquote(strings.TrimSuffix(line, "\n")); line == "" || line[0] == '#' {
					continue
				}
				if !filepath.IsAbs(line) {
					line = filepath.Join(dir, line)
				}
				if line = filepath.Clean(line); isDir(line) && !slices.Contains(all, line) {
					next = append(next, line)
				}
			}
		}
		level = next
	}
	return all
}

// configFile returns a file that a configuration names, with ~ for the user's home;
// "" if that cannot be said.
func configFile(value string) string {
	if rest, ok := strings.CutPrefix(value, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		value = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(value) {
		return ""
	}
	return filepath.Clean(value)
}

// Grants returns the paths that a run needs for this workspace, absolute: write is
// its folder, to be written to if the job may edit, else read. read are the object
// stores that its git borrows from. It needs nothing else of the user's.
//
// With isolation direct the folder holds the user's .git. A run that can write the
// folder can change it, or replace it: no grant within the folder holds that. Where
// .git lies elsewhere, since the folder is a subfolder of a repository or a linked
// worktree, it is in read: the run can look at the history and cannot commit.
func (ws *Workspace) Grants() (read, write []string) {
	write = []string{ws.tree}
	r := ws.repo
	if r == nil {
		return nil, write
	}
	stores := borrowed(r.Objects)
	switch ws.isolation {
	case job.Direct:
		if !inside(r.Common, realOrSame(ws.tree)) {
			read = append(read, r.Common)
		}
	case job.Copy:
		stores = slices.DeleteFunc(stores, func(s string) bool { return inside(s, realOrSame(r.Objects)) }) // these were copied
	}
	for _, s := range stores {
		if !inside(s, realOrSame(ws.tree)) && !slices.ContainsFunc(read, func(p string) bool { return inside(s, p) }) {
			read = append(read, s)
		}
	}
	return read, write
}
