package scheduler

import (
	"context"
	"fmt"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// ParcelReader reads what is kept of submitters' folders.
type ParcelReader interface {
	// ReadAt returns up to n bytes of a parcel from an offset, and the size of the whole;
	// none at its end.
	ReadAt(ctx context.Context, digest string, offset int64, n int) (data []byte, size int64, err error)
}

// parcels gives cores what the workspaces of their runs are made of.
type parcels struct {
	kept ParcelReader // nil: nothing is kept
	// flying returns the entry of a run, if the core has that run.
	flying func(c *supervisor.Core, id job.ID, attempt int) (queue.Entry, error)
}

// read answers for a run that the core has, and for no parcel but those of its job.
func (p *parcels) read(ctx context.Context, c *supervisor.Core, r ipc.ReadParcel) (ipc.ReadParcelResult, error) {
	e, err := p.flying(c, r.Job, r.Attempt)
	if err != nil {
		return ipc.ReadParcelResult{}, err
	}
	of := &e.Spec.Workspace.Parcel
	if p.kept == nil || r.Digest == "" || r.Digest != of.Digest && r.Digest != of.On {
		return ipc.ReadParcelResult{}, fmt.Errorf("job %s names no parcel %.80q", r.Job, r.Digest)
	}
	if r.Offset < 0 {
		return ipc.ReadParcelResult{}, fmt.Errorf("offset is %d, want 0 or more", r.Offset)
	}
	data, size, err := p.kept.ReadAt(ctx, r.Digest, r.Offset, ipc.MaxParcelPiece)
	return ipc.ReadParcelResult{Data: data, Size: size}, err
}
