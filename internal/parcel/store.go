package parcel

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Kept is a parcel that is kept.
type Kept struct {
	job.Parcel       // without the folder
	Size       int64 `json:"size"` // bytes of its file
}

// Errors that callers tell apart.
var (
	ErrUnknown = errors.New("no such parcel is kept")
	ErrInvalid = errors.New("it is not what was announced")
	ErrLarge   = errors.New("it is too large")
	ErrFull    = errors.New("no room is left for parcels")
)

// Store keeps parcels. Several goroutines may use it at once.
type Store interface {
	// Put keeps a parcel, whose content is read to its end. Its digest is right. One that is
	// kept already stays as it is, and is used now.
	Put(ctx context.Context, k Kept, content io.Reader) error
	// Use returns a parcel and notes that it is used now; ErrUnknown.
	Use(ctx context.Context, digest string) (Kept, error)
	// Newest returns of the parcels of a repository that have a commit, or with "" of those
	// that build on no other, the one that was used last, and notes that it is used now;
	// ErrUnknown.
	Newest(ctx context.Context, repository, commit string) (Kept, error)
	// ReadAt returns up to n bytes from an offset, none at the end, and the size of the
	// whole; ErrUnknown.
	ReadAt(ctx context.Context, digest string, offset int64, n int) (data []byte, size int64, err error)
	// Size returns the bytes of all.
	Size(ctx context.Context) (int64, error)
	// Prune removes what is not named and was not used since before, and returns how many
	// these were.
	Prune(ctx context.Context, named map[string]bool, before time.Time) (int, error)
}
