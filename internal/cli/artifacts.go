package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// artifactStore keeps files that attempts left for all schedulers of a queue.
type artifactStore interface {
	Keep(ctx context.Context, id job.ID, attempt int, name string, content io.Reader) error
	// Write writes a file; the error wraps queue.ErrNotFound if there is none.
	Write(ctx context.Context, id job.ID, attempt int, name string, w io.Writer) error
	// Forget removes the files of jobs that are gone.
	Forget(ctx context.Context) error
}

// keepTime bounds how long the end of an attempt waits for its files to be kept.
const keepTime = 30 * time.Second

// keepFiles stores what an attempt left, before its end is recorded, where other schedulers find it. What is not
// kept is on this host alone.
func (o *owned) keepFiles(id job.ID, attempt int, outcome *job.Outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	list := slices.Clone(outcome.Artifacts)
	node.LogsLast(list)
	room := int64(node.MaxArtifacts)
	for i := range list {
		a := &list[i]
		if a.Bytes > room {
			o.log.Warn().Str("job", string(id)).Str("artifact", a.Name).Int64("bytes", a.Bytes).Msg("a file of the attempt is too large to be kept: it stays on this host alone")
			continue
		}
		room -= a.Bytes
		if err := o.keepFile(ctx, id, attempt, a); err != nil {
			o.log.Warn().Err(err).Str("job", string(id)).Str("artifact", a.Name).Msg("a file of the attempt stays on this host alone")
		}
	}
}

func (o *owned) keepFile(ctx context.Context, id job.ID, attempt int, a *job.Artifact) error {
	f, err := statedir.OpenWithin(o.dir.Attempt(id, attempt), *a)
	if err != nil {
		return err
	}
	defer f.Close()
	return o.artifacts.Keep(ctx, id, attempt, a.Name, io.LimitReader(f, a.Bytes))
}

// fileHere returns where a file that an attempt left lies on this host. One that another scheduler of the queue
// has seen is brought here.
func (o *owned) fileHere(ctx context.Context, a job.Artifact) (job.Artifact, error) {
	id, attempt, ok := statedir.AttemptOf(a.Path)
	if !ok {
		return a, nil
	}
	folder := o.dir.Attempt(id, attempt)
	for _, name := range []string{filepath.Base(a.Path), a.Name} {
		if _, err := os.Lstat(filepath.Join(folder, name)); err == nil {
			a.Path = filepath.Join(folder, name)
			return a, nil
		}
	}
	a.Path = filepath.Join(folder, a.Name)
	return a, o.fetchFile(ctx, id, attempt, a.Name)
}

// fetchFile brings a file of an attempt into its folder, from where all schedulers find it.
func (o *owned) fetchFile(ctx context.Context, id job.ID, attempt int, name string) error {
	folder := o.dir.Attempt(id, attempt)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, "."+name+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it was renamed, or is nothing
	if err := errors.Join(o.artifacts.Write(ctx, id, attempt, name, f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(folder, name))
}
