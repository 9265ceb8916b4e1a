package scheduler

import (
	"cmp"
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
func (p *patches) give(ctx context.Context, run *schedule.Run, away bool, r *ipc.SubmitJob) {
	e := &run.Entry
	r.Away, r.KeepSession = away, away || p.here != nil
	if e.Continues != "" || e.ForkedFrom != "" {
		if err := p.leave(ctx, run, r); err != nil {
			p.log.Warn().Err(err).Str("job", string(e.ID)).Msg("what the job goes on from has left is not known: it goes on with what is in its folder")
		}
	}
	if r.Session != "" && (r.Elsewhere || p.here != nil && !away) { // this may be another scheduler's host than that of before
		var err error
		if r.Carried, err = p.carried(ctx, e); err != nil {
			p.log.Warn().Err(err).Str("job", string(e.ID)).Msg("whether the files of the agent's session were kept is not known: it starts over if they are elsewhere")
		}
	}
	if !away && p.here == nil {
		return
	}
	var err error
	if r.Named, err = p.named(ctx, e); err != nil {
		p.log.Warn().Err(err).Str("job", string(e.ID)).Msg("which patches a job's words name is not known: their paths stay as they are")
	}
}

// leave says in submit_job what a job that goes on from another one finds.
func (p *patches) leave(ctx context.Context, run *schedule.Run, r *ipc.SubmitJob) error {
	e := &run.Entry
	own, err := p.store.Attempts(ctx, e.ID)
	if err != nil {
		return err
	}
	if e.ForkedFrom != "" {
		began := func(a job.Attempt) bool { return a.Session != "" || a.Outcome != nil && a.Outcome.Session != "" }
		if slices.ContainsFunc(own, began) {
			return nil // it has a session and a folder of its own
		}
		from, err := p.store.Get(ctx, e.ForkedFrom)
		if err != nil {
			return err
		}
		r.Fork = from.WorksIn()
	}
	r.Left, err = p.left(ctx, e, run.Node)
	return err
}

// left returns what the latest attempt of an entry, or of those before it, has left, as it is told a core of that node.
// Nil: there was none.
func (p *patches) left(ctx context.Context, e *queue.Entry, node string) (*ipc.Left, error) {
	var found *ipc.Left
	for at := *e; ; {
		attempts, err := p.store.Attempts(ctx, at.ID)
		if err != nil {
			return nil, err
		}
		for _, a := range slices.Backward(attempts) {
			if at.ID == e.ID && a.Outcome == nil && a.Ended == nil {
				continue // the one that begins
			}
			if found == nil {
				found = &ipc.Left{Here: a.Node == node}
			}
			if a.Outcome == nil {
				continue // what it has changed is in the folder alone
			}
			if patch, ok := a.Outcome.Artifact(job.ArtifactPatch); ok {
				found.Patch = job.Patch{Job: e.Spec.Name, Path: patch.Path, Bytes: patch.Bytes, SHA256: patch.SHA256}
				return found, nil
			}
		}
		before := cmp.Or(at.Continues, at.ForkedFrom)
		if before == "" {
			return found, nil
		}
		if at, err = p.store.Get(ctx, before); err != nil {
			return nil, err
		}
	}
}

// carried returns what the last attempt that kept the files of the entry's session has left; nil if none did.
func (p *patches) carried(ctx context.Context, e *queue.Entry) (*ipc.Carried, error) {
	for at := *e; ; {
		c, err := p.carriedBy(ctx, e, at.ID)
		if c != nil || err != nil || at.Continues == "" {
			return c, err
		}
		if at, err = p.store.Get(ctx, at.Continues); err != nil {
			return nil, err
		}
	}
}

// carriedBy is carried for the attempts of a job that the entry goes on from, or its own.
func (p *patches) carriedBy(ctx context.Context, e *queue.Entry, id job.ID) (*ipc.Carried, error) {
	attempts, err := p.store.Attempts(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, a := range slices.Backward(attempts) {
		if a.Outcome == nil || a.Outcome.Session != e.Session || a.Choice.Worker != e.SessionWorker {
			continue
		}
		if session, ok := a.Outcome.Artifact(job.ArtifactSession); ok {
			patch, _ := a.Outcome.Artifact(job.ArtifactPatch)
			return &ipc.Carried{Session: session, Patch: job.Patch{Job: e.Spec.Name, Path: patch.Path, Bytes: patch.Bytes, SHA256: patch.SHA256}}, nil
		}
	}
	return nil, nil
}

// read answers for a run that the core has, and for no file but those that the run is given.
func (p *patches) read(ctx context.Context, c *supervisor.Core, r ipc.ReadPatch) (out ipc.ReadPatchResult, err error) {
	run, err := p.runOn(c, r.Job, r.Attempt)
	if err != nil {
		return out, err
	}
	given, err := p.given(ctx, run, r.Path)
	if err != nil {
		return out, err
	}
	if given.Path == "" || r.Offset < 0 {
		return out, fmt.Errorf("job %s is given no file %.200q at %d", r.Job, r.Path, r.Offset)
	}
	at, err := fileHere(ctx, p.here, given)
	if err == nil {
		out.Data, err = pieceOf(at, r.Offset)
	}
	if errors.Is(err, queue.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return ipc.ReadPatchResult{Missing: "neither the scheduler's host nor the store has it"}, nil
	}
	return out, err
}

// given returns the file of that path that a run is given: a patch of another job, or what an earlier attempt of its own
// left of the session that it goes on with. The zero value is none.
func (p *patches) given(ctx context.Context, run *schedule.Run, path string) (job.Artifact, error) {
	if path == "" {
		return job.Artifact{}, nil
	}
	e := &run.Entry
	var list []job.Patch
	if e.Resolved != nil {
		list = e.Resolved.Patches
	}
	if run.Resume() != "" {
		c, err := p.carried(ctx, e)
		if err != nil {
			return job.Artifact{}, err
		}
		if c != nil {
			if c.Session.Path == path {
				return c.Session, nil
			}
			list = append(slices.Clone(list), c.Patch)
		}
	}
	if e.Continues != "" || e.ForkedFrom != "" {
		left, err := p.left(ctx, e, run.Node)
		if err != nil {
			return job.Artifact{}, err
		}
		if left != nil {
			list = append(slices.Clone(list), left.Patch)
		}
	}
	is := func(x job.Patch) bool { return x.Path == path }
	i := slices.IndexFunc(list, is)
	if i < 0 {
		var err error
		if list, err = p.named(ctx, e); err != nil {
			return job.Artifact{}, err
		}
		i = slices.IndexFunc(list, is)
	}
	if i < 0 {
		return job.Artifact{}, nil
	}
	return job.Artifact{Name: job.ArtifactPatch, Path: path, Bytes: list[i].Bytes, SHA256: list[i].SHA256}, nil
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
