package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// methodArtifact is a call of channel 0, node → scheduler: Piece → ipc.Empty. The files that an attempt left are sent
// before its end is told, piece by piece, in order.
const methodArtifact = "node_artifact"

// Piece is a part of a file that an attempt left.
type Piece struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Place   int    `json:"place"` // of the core that has the run
	Name    string `json:"name"`  // job.Artifact.Name
	Offset  int64  `json:"offset"`
	Data    []byte `json:"data"`
	Last    bool   `json:"last,omitempty"`
}

// MaxArtifacts bounds the files of one attempt that go to the scheduler, in bytes. Logs that do not fit in stay on the node.
const MaxArtifacts = 64 << 20

const pieceSize = 256 << 10

// LogsLast puts what others build on before the logs.
func LogsLast(list []job.Artifact) {
	isLog := func(a *job.Artifact) int {
		if a.Name == job.ArtifactStdout || a.Name == job.ArtifactStderr {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b job.Artifact) int { return cmp.Compare(isLog(&a), isLog(&b)) })
}

// send sends the files of an attempt whose end is about to be told: what others build on before the logs.
func (s *session) send(ctx context.Context, place int, e *ipc.JobCompleted) error {
	list := slices.Clone(e.Outcome.Artifacts)
	LogsLast(list)
	room := int64(MaxArtifacts)
	for i := range list {
		a := &list[i]
		if a.Bytes > room {
			s.n.cfg.Log.Warn().Str("job", string(e.Job)).Str("artifact", a.Name).Int64("bytes", a.Bytes).Msg("a file of the attempt is too large to be sent: it stays on this host")
			continue
		}
		room -= a.Bytes
		err := s.sendFile(ctx, place, e, a)
		var refused *ipc.Error
		var local *os.PathError
		switch {
		case err == nil:
		case errors.As(err, &refused), errors.As(err, &local):
			s.n.cfg.Log.Error().Err(err).Str("job", string(e.Job)).Str("artifact", a.Name).Msg("a file of the attempt is not sent: it stays on this host")
		default:
			return err
		}
	}
	return nil
}

func (s *session) sendFile(ctx context.Context, place int, e *ipc.JobCompleted, a *job.Artifact) error {
	f, err := statedir.OpenWithin(s.n.cfg.Attempt(e.Job, e.Attempt), *a)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, pieceSize)
	for offset := int64(0); ; {
		n, err := io.ReadFull(f, buf[:min(int64(pieceSize), max(a.Bytes-offset, 0))])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		p := Piece{Job: e.Job, Attempt: e.Attempt, Place: place, Name: a.Name, Offset: offset, Data: buf[:n], Last: err != nil || offset+int64(n) >= a.Bytes}
		if err := s.ctl.Call(ctx, methodArtifact, p, nil); err != nil || p.Last {
			return err
		}
		offset += int64(n)
	}
}

// sendBefore sends the files that have to be there before notes are told.
func (s *session) sendBefore(ctx context.Context, notes []Note) error {
	for i := range notes {
		if notes[i].Method != ipc.NotifyJobCompleted {
			continue
		}
		var e ipc.JobCompleted
		if err := json.Unmarshal(notes[i].Params, &e); err != nil {
			return err
		}
		if err := s.send(ctx, notes[i].Place, &e); err != nil {
			return err
		}
	}
	return nil
}

var artifactName = regexp.MustCompile(`^[a-z]{1,32}$`)

// keep takes a piece of a file of a run that the node has.
func (s *visit) keep(p *Piece) error {
	c := s.node.core(p.Place)
	if c == nil || !s.nodes.cfg.Handler.CoreHas(c.Core, p.Job, p.Attempt) {
		return ipc.InvalidParams(fmt.Errorf("attempt %d of job %s is not this node's", p.Attempt, p.Job))
	}
	if !artifactName.MatchString(p.Name) || p.Offset < 0 || p.Offset+int64(len(p.Data)) > MaxArtifacts {
		return ipc.InvalidParams(fmt.Errorf("artifact %.40q at %d with %d bytes: the name must be of lower-case letters, and it must end within %d bytes", p.Name, p.Offset, len(p.Data), MaxArtifacts))
	}
	folder := s.nodes.cfg.Attempt(p.Job, p.Attempt)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	path := filepath.Join(folder, p.Name)
	flags := os.O_WRONLY | os.O_CREATE | syscall.O_NOFOLLOW
	if p.Offset == 0 {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path+partSuffix, flags, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() < p.Offset {
		err = ipc.InvalidParams(fmt.Errorf("artifact %s at %d: %d bytes are there", p.Name, p.Offset, info.Size()))
	}
	if err == nil {
		_, err = f.WriteAt(p.Data, p.Offset)
	}
	if err == nil && p.Last {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil || !p.Last {
		return err
	}
	return os.Rename(path+partSuffix, path)
}

const partSuffix = ".part"

// kept returns the end of an attempt with the files that are here. Of the others those stay whose content is recorded, such as
// a patch: who builds on it is told that it is missing, and does not take it for empty.
func (s *visit) kept(params json.RawMessage) (json.RawMessage, error) {
	var e ipc.JobCompleted
	if err := json.Unmarshal(params, &e); err != nil {
		return nil, err
	}
	folder := s.nodes.cfg.Attempt(e.Job, e.Attempt)
	e.Outcome.Artifacts = slices.DeleteFunc(e.Outcome.Artifacts, func(a job.Artifact) bool {
		info, err := os.Lstat(filepath.Join(folder, a.Name))
		return !artifactName.MatchString(a.Name) || a.SHA256 == "" && (err != nil || !info.Mode().IsRegular())
	})
	for i := range e.Outcome.Artifacts {
		a := &e.Outcome.Artifacts[i]
		a.Path = filepath.Join(folder, a.Name)
	}
	return json.Marshal(e)
}
