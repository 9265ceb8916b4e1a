package agentcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// folder is the job whose workspace and private folders the run uses.
func (e *execution) folder() job.ID { return cmp.Or(e.submit.Folder, e.submit.Job) }

// inherit completes the request for the workspace of a run that goes on from another job, and sees to the session that it
// goes on with. c is a session of another host, or nil. bring then brings the other job's work into a workspace that was made
// anew.
func (e *execution) inherit(ctx context.Context, c *carried, request *workspace.Request) (bring func(context.Context, *workspace.Workspace) error, err error) {
	s := &e.submit
	nothing := func(context.Context, *workspace.Workspace) error { return nil }
	switch {
	case s.Fork != "":
		if err := e.copySession(ctx); err != nil {
			return nil, err
		}
		request.Fresh, request.Like = true, s.Fork
	case s.Folder == "":
		return nothing, nil
	default:
		there, err := e.isThere(ctx, request)
		if err != nil {
			return nil, err
		}
		request.Fresh = c != nil || s.Left != nil && !s.Left.Here
		if !there || request.Fresh {
			request.Uncollected = cmp.Or(request.Uncollected, e.attemptDir())
		}
		if c == nil && s.Session != "" && !isFolder(e.home()) {
			e.emit(job.Event{Kind: job.EventWarning, Text: "the agent starts over: its session was removed"})
			s.Session = ""
		}
		if there && !request.Fresh {
			return nothing, nil
		}
	}
	if c != nil || s.Left == nil || s.Left.Patch.Path == "" || request.Spec.Isolation == job.Direct {
		return nothing, nil
	}
	return e.bringWork, nil
}

// isThere reports whether the workspace that the run goes on in exists.
func (e *execution) isThere(ctx context.Context, request *workspace.Request) (bool, error) {
	_, err := e.workspaces.Open(ctx, request.Job, request.Spec)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// bringWork brings what another job had changed into a workspace that was just made, as work of this one.
func (e *execution) bringWork(ctx context.Context, ws *workspace.Workspace) error {
	p := e.submit.Left.Patch
	what := "the folder that the job goes on in was removed"
	if e.submit.Fork != "" {
		what = "the job begins with the work of another"
	}
	path, err := e.patchHere(ctx, p)
	if err == nil {
		p.Path = path
		err = e.workspaces.Reapply(ctx, ws, p)
	}
	var clash *workspace.PatchesError
	switch {
	case err == nil && e.submit.Fork == "":
		e.emit(job.Event{Kind: job.EventWarning, Text: what + ": it is made anew with the patch that was kept; files that git ignores, and commits, are gone"})
		return nil
	case errors.As(err, &clash):
		return &worker.Failure{Class: job.ConflictClass, Message: fmt.Sprintf("%s, and its patch does not fit what is there now: %v", what, clash), Hint: "submit a new job; `scheduler diff` prints the patch"}
	case errors.Is(err, fs.ErrNotExist):
		return &worker.Failure{Class: job.Config, Message: fmt.Sprintf("%s, and its patch is gone: %v", what, err), Hint: "submit a new job"}
	}
	return err
}

// copySession gives the run a copy of the private folder of the job that it is forked from.
func (e *execution) copySession(ctx context.Context) error {
	s := &e.submit
	a, err := e.adapter()
	if err != nil {
		return err
	}
	if !worker.TraitsOf(a).Forks {
		return &worker.Failure{Class: job.Config, Message: fmt.Sprintf("worker %s cannot go on from a copy of a session", s.Choice.Worker), Hint: "submit a new job"}
	}
	if s.Session == "" {
		return nil
	}
	home, from := e.home(), e.session.dir.Home(s.Fork, s.Choice.Worker)
	if err := os.RemoveAll(home); err != nil {
		return fmt.Errorf("empty the worker's private folder: %w", err)
	}
	if s.Elsewhere || !isFolder(from) {
		e.emit(job.Event{Kind: job.EventWarning, Text: "the agent starts over: the session that it was to begin with is not on this host, or was removed"})
		s.Session = ""
		return nil
	}
	patterns := []string{"."}
	if p, ok := a.(worker.Portable); ok {
		patterns = p.SessionFiles(s.Session)
	}
	if err := copyFiles(ctx, from, home, patterns); err != nil {
		return &worker.Failure{Class: job.Config, Message: fmt.Sprintf("copy the session of job %s: %v", s.Fork, err), Hint: "submit a new job"}
	}
	if ws, err := e.workspaces.Open(ctx, s.Fork, s.Spec.Workspace); err == nil {
		e.movedFrom = ws.Dir
	}
	return nil
}

// What is copied of a session's folder is bounded: it is as the run has left it.
const (
	maxForked      = 1 << 30
	maxForkedFiles = 50_000
)

// copyFiles copies the regular files of a folder that match the patterns, or are below folders that do, into a new one.
func copyFiles(ctx context.Context, from, to string, patterns []string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	source, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer target.Close()
	names, err := sessionFiles(source.FS(), patterns, maxForkedFiles)
	if err != nil {
		return err
	}
	left := int64(maxForked)
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := copyWithin(source, target, name, left)
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

func copyWithin(source, target *os.Root, name string, most int64) (int64, error) {
	f, err := source.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", name)
	}
	if err := target.MkdirAll(path.Dir(name), 0o700); err != nil {
		return 0, err
	}
	out, err := target.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm()&0o700|0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, io.LimitReader(f, most+1))
	if n > most {
		err = fmt.Errorf("it has more than %d MiB", maxForked>>20)
	}
	return n, errors.Join(err, out.Close())
}
