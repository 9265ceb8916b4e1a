package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// patches brings runs what other jobs have left that they build on.
type patches struct {
	store queue.Reader
	here  func(context.Context, job.Artifact) (job.Artifact, error) // Config.FileHere
	runOn func(c *supervisor.Core, id job.ID, attempt int) (*schedule.Run, error)
	log   zerolog.Logger
}

// fileHere returns where a file lies on this host.
func fileHere(ctx context.Context, here func(context.Context, job.Artifact) (job.Artifact, error), a job.Artifact) (job.Artifact, error) {
	if here == nil {
		return a, nil
	}
	return here(ctx, a)
}

// leftBy is a part of the path of a file that an attempt left, whoever's host that is.
var leftBy = regexp.MustCompile(`/jobs/([0-9a-f-]{36})/[1-9][0-9]{0,9}/`)

// maxNamed bounds how many patches the words of a job may name.
const maxNamed = 100

// named returns the patches of other jobs of the batch whose paths occur in what a job is told.
func (p *patches) named(ctx context.Context, e *queue.Entry) (list []job.Patch, err error) {
	r := e.Resolved
	if r == nil {
		return nil, nil
	}
	words := strings.Join([]string{r.Instructions, r.SystemPrompt, r.Verify, string(r.Input)}, "\n")
	seen := map[string]bool{}
	for _, m := range leftBy.FindAllStringSubmatch(words, -1) {
		if seen[m[1]] || len(seen) == maxNamed {
			continue
		}
		seen[m[1]] = true
		other, err := p.store.Get(ctx, job.ID(m[1]))
		if errors.Is(err, queue.ErrNotFound) || err == nil && other.Batch != e.Batch {
			continue // whatever that is, it is nothing that this job was given
		}
		if err != nil {
			return nil, err
		}
		attempts, err := p.store.Attempts(ctx, other.ID)
		if err != nil {
			return nil, err
		}
		for i := range attempts {
			if o := attempts[i].Outcome; o != nil {
				if a, ok := o.Artifact(job.ArtifactPatch); ok && strings.Contains(words, a.Path) {
					list = append(list, job.Patch{Job: other.Spec.Name, Path: a.Path, Bytes: a.Bytes, SHA256: a.SHA256})
				}
			}
		}
	}
	return list, nil
}

// give says in submit_job what the core has to get from here. One that runs on another host gets all of it.
func (p *patches) give(ctx context.Context, e *queue.Entry, away bool, r *ipc.SubmitJob) {
	r.Away = away
	if !away && p.here == nil {
		return
	}
	var err error
	if r.Named, err = p.named(ctx, e); err != nil {
		p.log.Warn().Err(err).Str("job", string(e.ID)).Msg("which patches a job's words name is not known: their paths stay as they are")
	}
}

// read answers for a run that the core has, and for no patch but those that the run is given.
func (p *patches) read(ctx context.Context, c *supervisor.Core, r ipc.ReadPatch) (out ipc.ReadPatchResult, err error) {
	run, err := p.runOn(c, r.Job, r.Attempt)
	if err != nil {
		return out, err
	}
	var given []job.Patch
	if e := &run.Entry; e.Resolved != nil {
		given = e.Resolved.Patches
	}
	is := func(x job.Patch) bool { return x.Path == r.Path }
	i := slices.IndexFunc(given, is)
	if i < 0 {
		if given, err = p.named(ctx, &run.Entry); err != nil {
			return out, err
		}
		i = slices.IndexFunc(given, is)
	}
	if i < 0 || r.Path == "" || r.Offset < 0 {
		return out, fmt.Errorf("job %s is given no patch %.200q at %d", r.Job, r.Path, r.Offset)
	}
	at, err := fileHere(ctx, p.here, job.Artifact{Name: job.ArtifactPatch, Path: r.Path, Bytes: given[i].Bytes, SHA256: given[i].SHA256})
	if err == nil {
		out.Data, err = pieceOf(at, r.Offset)
	}
	if errors.Is(err, queue.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return ipc.ReadPatchResult{Missing: "neither the scheduler's host nor the store has it"}, nil
	}
	return out, err
}

// pieceOf reads a piece of a file that an attempt left.
func pieceOf(a job.Artifact, offset int64) ([]byte, error) {
	f, err := statedir.OpenWithin(filepath.Dir(a.Path), a)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, ipc.MaxParcelPiece)
	n, err := f.ReadAt(buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return buf[:n], nil
}
