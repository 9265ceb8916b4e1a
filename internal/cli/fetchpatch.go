package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/internal/workspace/travel"
	"github.com/agentsched/agentsched/job"
)

// fetchPatch returns a patch of the job as a file of this host, which done removes if it
// came from elsewhere. What it holds is compared with what is recorded of it when it is
// opened.
func (p *peer) fetchPatch(ctx context.Context, j *api.JobDetail, patch job.Artifact) (_ job.Artifact, done func(), err error) {
	nothing := func() {}
	if patch.Path == "" || p.offline != nil && lies(patch.Path) {
		return patch, nothing, nil
	}
	temp, err := os.MkdirTemp("", "agentsched-")
	if err != nil {
		return patch, nothing, failure(err)
	}
	done = func() { os.RemoveAll(temp) }
	if patch.Path, err = p.download(ctx, j, patch, temp); err != nil {
		done()
		return patch, nothing, err
	}
	return patch, done, nil
}

// lies reports whether there is a file on this host. Of a fleet's job it may be on the one that has run it, or on
// none any more: the scheduler has it.
func lies(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// download writes an artifact of the job's last attempt into a folder, of at most as many
// bytes as are recorded.
func (p *peer) download(ctx context.Context, j *api.JobDetail, a job.Artifact, folder string) (path string, err error) {
	from, err := p.Artifact(ctx, string(j.Job.ID), len(j.Attempts), a.Name)
	if err != nil {
		return "", p.refused(err)
	}
	defer from.Close()
	path = filepath.Join(folder, workspace.PatchName)
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", failure(err)
	}
	_, err = io.Copy(to, io.LimitReader(from, a.Bytes+1))
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", failure(fmt.Errorf("get the patch of job %s: %w", j.Job.Spec.Name, err))
	}
	return path, nil
}

// workspaces returns what looks at folders of this host for the state directory, or for none.
func (p *peer) workspaces() (w *workspace.Manager, done func(), err error) {
	if p.offline != nil {
		return workspaces(p.offline.dir, nil), func() {}, nil
	}
	temp, err := os.MkdirTemp("", "agentsched-")
	if err != nil {
		return nil, nil, failure(err)
	}
	return ownWorkspaces(temp), func() { os.RemoveAll(temp) }, nil
}

// folderOf returns the folder of this host that the job was given.
func (p *peer) folderOf(ctx context.Context, e *api.Job) (string, error) {
	w := &e.Spec.Workspace
	switch {
	case w.Parcel != (job.Parcel{}):
		return p.clone(ctx, e)
	case w.Repo != "":
		return "", usage(fmt.Errorf("job %s worked on %s; say which clone its patch shall change with --to DIR", e.Spec.Name, job.RedactURL(w.Repo)))
	case w.Path == "":
		return "", usage(fmt.Errorf("job %s had no workspace; say where its files shall go with --to DIR", e.Spec.Name))
	case p.offline == nil:
		return "", usage(fmt.Errorf("job %s worked on %s of the scheduler's host; say which folder of this one its patch shall change with --to DIR", e.Spec.Name, w.Path))
	}
	return w.Path, nil
}

// clone returns a folder of the repository that the job was given a folder of: the
// current one, or else that folder. What its path is says the scheduler, so it comes last.
func (p *peer) clone(ctx context.Context, e *api.Job) (string, error) {
	temp, err := os.MkdirTemp("", "agentsched-")
	if err != nil {
		return "", failure(err)
	}
	defer os.RemoveAll(temp)
	packer := &travel.Packer{Workspaces: ownWorkspaces(temp), Temp: filepath.Join(temp, "parcels")}
	of := &e.Spec.Workspace.Parcel
	here, err := os.Getwd()
	if err != nil {
		return "", failure(err)
	}
	for _, folder := range []string{here, of.Folder} {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			continue
		}
		if id, err := packer.Identify(ctx, folder); err == nil && string(id.Key("")) == of.Repository {
			return folder, nil
		}
	}
	return "", usage(fmt.Errorf("job %s worked on a folder of another clone than %s: neither %s nor that is of the repository", e.Spec.Name, here, of.Folder),
		"say which folder its patch shall change: scheduler apply "+string(e.Spec.Name)+" --to DIR")
}

// originOf says what a workspace is made of.
func originOf(w *job.Workspace) string {
	switch {
	case w.Repo != "":
		return job.RedactURL(w.Repo)
	case w.Parcel != (job.Parcel{}):
		return w.Parcel.Folder + " of the submitter's host"
	}
	return w.Path
}
