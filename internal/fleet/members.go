package fleet

import (
	"context"
	"time"
)

// Leader is the scheduler that leads.
type Leader struct {
	Epoch       int64     // of its lease: it grows with each change
	Instance    string    // of its state directory
	Address     string    // HOST:PORT where its Peers listen
	Fingerprint string    // of its certificate, as Identity.Fingerprint has it
	Since       time.Time // when its lease began
}

// Members tells which schedulers there are. It is asked for each request, so it answers
// from memory; its methods are called by many goroutines at once.
type Members interface {
	// Leader returns who leads, the zero Leader if nobody does now. A scheduler that has
	// taken the lead leads from when its Peers answer as the leader.
	Leader(ctx context.Context) (Leader, error)
	// Member reports whether a registered scheduler has the certificate of that
	// fingerprint.
	Member(fingerprint string) bool
	// Changed returns a channel that is closed when Leader returns another one than it
	// would have returned before the call.
	Changed() <-chan struct{}
}
