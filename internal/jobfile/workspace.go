package jobfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// workspace returns where job e works; path is that of e's field.
func (r *reader) workspace(path string, e *entry) job.Workspace {
	if e.Workspace == nil {
		return job.Workspace{Isolation: job.NoWorkspace}
	}
	given := e.Workspace
	w := job.Workspace{Isolation: given.Isolation, Base: given.Base}
	if e.Type == jobType(job.LLM) && w.Isolation != job.NoWorkspace {
		r.Failf(path, "is not for a job of type LLM, which has no files; leave it out")
		return w
	}
	if given.Repo != "" {
		return r.repository(path, given, w)
	}
	if given.Path == "" {
		switch w.Isolation {
		case job.NoWorkspace: // needs none
		default:
			r.Failf(path+".path", "is missing, want the folder to work in, or repo; a job that needs no folder has no workspace")
		}
		return w
	}
	if parcel, brought := r.brought(e); brought {
		return r.travelled(path, given, w, parcel)
	}
	w.Path = r.folder(path+".path", given.Path)
	inGit := insideGit(w.Path)
	switch {
	case w.Isolation == "" && e.Type == jobType(job.Maintenance):
		w.Isolation = job.Direct
	case w.Isolation == "" && inGit:
		w.Isolation = job.Worktree
	case w.Isolation == "":
		w.Isolation = job.Copy
	case w.Isolation == job.Worktree && !inGit:
		r.Failf(path+".isolation", "worktree needs a git repository and %s is not inside one; want copy or direct, or run git init there", w.Path)
	}
	return w
}

// repository returns the workspace of a job that names a repository.
func (r *reader) repository(path string, given *workspace, w job.Workspace) job.Workspace {
	w.Repo = given.Repo
	if given.Path != "" {
		r.Failf(path+".path", "%q and the repository %q cannot both be the workspace; leave one out", given.Path, job.RedactURL(given.Repo))
	}
	if w.Isolation == "" {
		w.Isolation = job.Worktree
	}
	return w
}

// brought returns the parcel that came with the job file for a folder of its host.
func (r *reader) brought(e *entry) (job.Parcel, bool) {
	if !travels(e) {
		return job.Parcel{}, false
	}
	full, err := r.absolute(e.Workspace.Path)
	p, brought := r.opts.Parcels[full]
	return job.Parcel{Digest: p.Digest, Sub: p.Sub, Folder: full}, err == nil && brought
}

// travelled returns the workspace of a job whose folder was brought from another host.
func (r *reader) travelled(path string, given *workspace, w job.Workspace, p job.Parcel) job.Workspace {
	if given.Base != "" {
		r.Failf(path+".base", "%q is of a folder on another host, which comes as it is; leave it out", given.Base)
	}
	if w.Isolation == "" {
		w.Isolation = job.Worktree
	}
	w.Base, w.Parcel = "", p
	return w
}

// folder returns the absolute path of a folder that must exist.
func (r *reader) folder(path, given string) string {
	full, err := r.absolute(given)
	if err != nil {
		r.Failf(path, "%v", err)
		return given
	}
	info, err := os.Stat(full)
	switch {
	case err != nil:
		r.Failf(path, "%q is %s: %v", given, full, strictyaml.WithoutPath(err))
	case !info.IsDir():
		r.Failf(path, "%q is %s, which is not a folder", given, full)
	}
	return full
}

// absolute returns path with a leading ~/ expanded and, if it is relative,
// taken from the job file's folder.
func (r *reader) absolute(path string) (string, error) {
	if path == "~" || strings.HasPrefix(path, "~/") {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%q begins with ~, but the home folder is not known: %w", path, err)
		}
		return filepath.Join(home, path[1:]), nil
	}
	if strings.HasPrefix(path, "~") {
		return "", fmt.Errorf("%q begins with another user's home folder; only ~/ is understood, write ./%s for a folder of that name", path, path)
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	return filepath.Join(r.base, path), nil
}

// insideGit reports whether dir or a folder above it is a git repository.
// `.git` is a folder, or a file in a worktree and in a submodule.
func insideGit(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}
