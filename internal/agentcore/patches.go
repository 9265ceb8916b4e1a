package agentcore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// bring gets the patches of other jobs that the run is given and that are not on this host: those that its workspace
// begins with, which it returns, and those that its words name, where their paths become those of the copies. The copies
// lie in the run's temporary folder, where it can read them.
func (e *execution) bring(ctx context.Context) ([]job.Patch, error) {
	var list []job.Patch
	if r := e.submit.Resolved; r != nil {
		for _, p := range r.Patches {
			var err error
			if p.Path, err = e.patchHere(ctx, p); err != nil {
				return nil, err
			}
			list = append(list, p)
		}
	}
	for _, p := range e.submit.Named {
		path, err := e.patchHere(ctx, p)
		if err != nil {
			return nil, err
		}
		e.rename(p.Path, path)
	}
	return list, nil
}

// rename replaces a path in what the run is told.
func (e *execution) rename(from, to string) {
	s := &e.submit.Spec
	for _, text := range []*string{&s.Instructions, &s.SystemPrompt, &s.Verify} {
		*text = strings.ReplaceAll(*text, from, to)
	}
	if r := e.submit.Resolved; r != nil {
		own := *r
		own.Input = []byte(strings.ReplaceAll(string(r.Input), from, to))
		e.submit.Resolved = &own
	}
}

// patchHere returns where a patch lies on this host.
func (e *execution) patchHere(ctx context.Context, p job.Patch) (string, error) {
	path := p.Path
	if path == "" {
		return "", nil
	}
	if e.submit.Away {
		if path = e.session.dir.Here(p.Path); path != "" { // the job that made it may have run here
			path = filepath.Join(filepath.Dir(path), workspace.PatchName)
		}
	}
	if path != "" {
		err := statedir.CheckArtifact(job.Artifact{Name: job.ArtifactPatch, Path: path, Bytes: p.Bytes, SHA256: p.SHA256})
		if err == nil || !e.submit.Away && !errors.Is(err, fs.ErrNotExist) {
			return path, nil // who applies it says what is wrong with it
		}
	}
	return e.fetch(ctx, "patch", p)
}

// maxPatch bounds a patch of which no size is recorded, in bytes.
const maxPatch = 1 << 30

// fetch gets a file from the scheduler, which is the patch or the session of a job.
func (e *execution) fetch(ctx context.Context, what string, p job.Patch) (string, error) {
	sum := sha256.Sum256([]byte(p.Path))
	path := filepath.Join(e.temp, what+"-"+strconv.Itoa(e.submit.Attempt)+"-"+hex.EncodeToString(sum[:8]))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	most := p.Bytes
	if most == 0 {
		most = maxPatch
	}
	hash, offset := sha256.New(), int64(0)
	for {
		piece, err := e.readPatch(ctx, what, p, offset)
		if err != nil {
			return "", err
		}
		if len(piece) == 0 {
			break
		}
		if offset += int64(len(piece)); offset > most {
			return "", fmt.Errorf("the %s of job %s has more than %d bytes", what, p.Job, most)
		}
		hash.Write(piece)
		if _, err := f.Write(piece); err != nil {
			return "", err
		}
	}
	if got := hex.EncodeToString(hash.Sum(nil)); p.SHA256 != "" && got != p.SHA256 {
		return "", fmt.Errorf("the %s of job %s cannot be trusted: found SHA-256 %s, recorded %s; run that job again", what, p.Job, got, p.SHA256)
	}
	return path, f.Close()
}

func (e *execution) readPatch(ctx context.Context, what string, p job.Patch, offset int64) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pieceTime, fmt.Errorf("no answer within %s", pieceTime))
	defer cancel()
	var r ipc.ReadPatchResult
	err := e.core.peer.Call(ctx, ipc.MethodReadPatch, ipc.ReadPatch{Job: e.submit.Job, Attempt: e.submit.Attempt, Path: p.Path, Offset: offset}, &r)
	switch {
	case err != nil:
		return nil, &worker.Failure{Class: job.Network, Message: fmt.Sprintf("read the %s of job %s from the scheduler: %v", what, p.Job, err)} // it may answer later
	case r.Missing != "":
		return nil, fmt.Errorf("the %s of job %s is missing: %s: %s; run that job again", what, p.Job, p.Path, r.Missing)
	}
	return r.Data, nil
}
