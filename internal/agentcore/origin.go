package agentcore

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/internal/workspace/travel"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// mirrorBounds are what a mirror keeps that no workspace needs.
var mirrorBounds = travel.Bounds{Age: 30 * 24 * time.Hour, Bytes: 8 << 30}

// origin finds what the run's worktree is made of, in the mirror of its repository. Mirrors
// are the tenant's: runs of others read nothing of them.
func (e *execution) origin(ctx context.Context) (workspace.Origin, error) {
	mirrors := &travel.Mirrors{Workspaces: e.workspaces, Dir: e.session.dir.Mirrors()}
	w := &e.submit.Spec.Workspace
	find := e.fetched
	if w.Parcel != (job.Parcel{}) {
		find = e.taken
	}
	m, start, err := find(ctx, mirrors)
	if err != nil {
		return workspace.Origin{}, err
	}
	if err := m.Call(w.Mirror(e.submit.Spec.Tenant)); err != nil {
		e.log.Warn().Err(err).Msg("a mirror is not listed")
	}
	if err := m.PruneDaily(ctx, mirrorBounds); err != nil {
		e.log.Warn().Err(err).Msg("a mirror was not pruned")
	}
	return workspace.Origin{Repository: m.Repository(), Commit: start.Commit, Sub: start.Sub}, nil
}

// fetched fetches the base of the job's repository.
func (e *execution) fetched(ctx context.Context, mirrors *travel.Mirrors) (*travel.Mirror, travel.Start, error) {
	w := &e.submit.Spec.Workspace
	if err := e.workspaces.CheckRepo(w.Repo); err != nil {
		return nil, travel.Start{}, &worker.Failure{Class: job.Config, Message: err.Error(), Hint: "correct workspace.repo"}
	}
	remote := travel.Remote{URL: w.Repo, Base: w.Base}
	m, err := mirrors.OpenRemote(ctx, string(e.submit.Spec.Tenant), remote)
	if err != nil {
		return nil, travel.Start{}, notFetched(err)
	}
	commit, err := m.Fetch(ctx, remote)
	if err != nil {
		return nil, travel.Start{}, notFetched(err)
	}
	start := travel.Start{Base: commit, Commit: commit}
	return m, start, m.Hold(ctx, start, e.workspaces.Home(e.folder()))
}

// notFetched says what follows from a repository that was not fetched.
func notFetched(err error) error {
	f := &worker.Failure{Class: job.Network, Message: err.Error()}
	limit := (*travel.LimitError)(nil)
	switch {
	case errors.Is(err, travel.ErrLogin):
		f.Class = job.Auth
		f.Hint = "let git on the host where the job runs log in without a question: a credential helper, or a key of ssh that it may use"
	case errors.Is(err, travel.ErrNoBase):
		f.Class, f.Hint = job.Config, "correct workspace.base or workspace.repo"
	case errors.As(err, &limit):
		f.Class = job.Config
	}
	return f
}

// taken takes the job's parcel, unless the mirror has it.
func (e *execution) taken(ctx context.Context, mirrors *travel.Mirrors) (*travel.Mirror, travel.Start, error) {
	w := e.submit.Spec.Workspace.Parcel
	release, err := e.core.fetching.acquire(ctx, w.Repository)
	if err != nil {
		return nil, travel.Start{}, err
	}
	defer release()
	file := e.parcel(ctx, w.Digest)
	p, err := file.head()
	if err != nil {
		return nil, travel.Start{}, err
	}
	if p.Commit != w.Commit || p.On != w.On || string(p.Key("")) != w.Repository {
		return nil, travel.Start{}, fmt.Errorf("parcel %.12s is not what the job names", w.Digest)
	}
	m, err := mirrors.Open(ctx, string(e.submit.Spec.Tenant), p.Identity)
	if err != nil {
		return nil, travel.Start{}, err
	}
	start := travel.Start{Base: p.Base, Commit: p.Commit, Sub: w.Sub}
	hold := func() error { return m.Hold(ctx, start, e.workspaces.Home(e.folder())) }
	if err = hold(); !errors.Is(err, travel.ErrMissing) {
		return m, start, err
	}
	err = file.takeInto(m)
	if errors.Is(err, travel.ErrMissing) && w.On != "" {
		if err = e.takeBase(ctx, m, w.On); err == nil {
			file = e.parcel(ctx, w.Digest)
			if _, err = file.head(); err == nil {
				err = file.takeInto(m)
			}
		}
	}
	if err != nil {
		return nil, travel.Start{}, err
	}
	return m, start, hold()
}

// takeBase takes the parcel that the job's builds on.
func (e *execution) takeBase(ctx context.Context, m *travel.Mirror, digest string) error {
	file := e.parcel(ctx, digest)
	if _, err := file.head(); err != nil {
		return err
	}
	return file.takeInto(m)
}

// parcelFile is a parcel that is read from the scheduler, once. At its end it is compared
// with its digest.
type parcelFile struct {
	ctx    context.Context
	e      *execution
	digest string
	offset int64
	piece  []byte
	hash   hash.Hash

	lines  *bufio.Reader
	parcel travel.Parcel
}

// pieceTime is how long the scheduler may take to answer with a piece of a parcel.
const pieceTime = 30 * time.Second

func (e *execution) parcel(ctx context.Context, digest string) *parcelFile {
	p := &parcelFile{ctx: ctx, e: e, digest: digest, hash: sha256.New()}
	p.lines = bufio.NewReader(p)
	return p
}

// Read implements io.Reader.
func (p *parcelFile) Read(b []byte) (int, error) {
	if len(p.piece) == 0 {
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.piece)
	p.piece = p.piece[n:]
	return n, nil
}

func (p *parcelFile) next() error {
	ctx, cancel := context.WithTimeoutCause(p.ctx, pieceTime, fmt.Errorf("no answer within %s", pieceTime))
	defer cancel()
	var r ipc.ReadParcelResult
	err := p.e.core.peer.Call(ctx, ipc.MethodReadParcel, ipc.ReadParcel{Job: p.e.submit.Job, Attempt: p.e.submit.Attempt, Digest: p.digest, Offset: p.offset}, &r)
	switch {
	case err != nil:
		return &worker.Failure{Class: job.Network, Message: fmt.Sprintf("read parcel %.12s from the scheduler: %v", p.digest, err)} // it may answer later
	case p.offset+int64(len(r.Data)) > travel.MaxFile:
		return fmt.Errorf("parcel %.12s has more than %d bytes", p.digest, int64(travel.MaxFile))
	case len(r.Data) > 0:
		p.offset += int64(len(r.Data))
		p.hash.Write(r.Data)
		p.piece = r.Data
		return nil
	case hex.EncodeToString(p.hash.Sum(nil)) != p.digest:
		return fmt.Errorf("parcel %.12s has the SHA-256 %x", p.digest, p.hash.Sum(nil))
	}
	return io.EOF
}

// head returns what the parcel holds. It is called first.
func (p *parcelFile) head() (*travel.Parcel, error) {
	var err error
	p.parcel, _, err = travel.ReadHead(p.lines)
	return &p.parcel, err
}

// takeInto gives the mirror the rest. The error wraps travel.ErrMissing if the mirror lacks
// what it builds on.
func (p *parcelFile) takeInto(m *travel.Mirror) error {
	if p.parcel.Size == 0 { // then nothing would find out that the head is not whole
		if n, err := io.Copy(io.Discard, p.lines); err != nil || n > 0 {
			return errors.Join(fmt.Errorf("parcel %.12s has %d bytes after its head, announced was none", p.digest, n), err)
		}
	}
	return m.Take(p.ctx, p.parcel, p.lines)
}

// keyed lets one at a time work on what has a key. The zero value is ready.
type keyed struct {
	mu   sync.Mutex               // guards what follows
	busy map[string]chan struct{} // closed when it is free again
}

// acquire waits until nobody else has the key.
func (k *keyed) acquire(ctx context.Context, key string) (release func(), err error) {
	for {
		free := k.take(key)
		if free == nil {
			return func() { k.release(key) }, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take takes the key, or returns what is closed when it may be free.
func (k *keyed) take(key string) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if free := k.busy[key]; free != nil {
		return free
	}
	if k.busy == nil {
		k.busy = map[string]chan struct{}{}
	}
	k.busy[key] = make(chan struct{})
	return nil
}

func (k *keyed) release(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.busy[key])
	delete(k.busy, key)
}
