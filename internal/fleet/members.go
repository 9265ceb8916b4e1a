package fleet

import (
	"context"
	"sync"
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

// Directory is Members as they were heard of last. The zero value knows nobody.
type Directory struct {
	mu      sync.RWMutex // guards what follows
	leader  Leader
	known   map[string]bool
	changed chan struct{} // nil: nobody waits
}

// Set says who leads, the zero Leader if nobody does, and which fingerprints are those of
// registered schedulers.
func (d *Directory) Set(leader Leader, fingerprints ...string) {
	known := make(map[string]bool, len(fingerprints))
	for _, one := range fingerprints {
		known[one] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.leader
	d.leader, d.known = leader, known
	if was.Since = leader.Since; was != leader && d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// Leader implements Members.
func (d *Directory) Leader(context.Context) (Leader, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.leader, nil
}

// Member implements Members.
func (d *Directory) Member(fingerprint string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.known[fingerprint]
}

// Changed implements Members.
func (d *Directory) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.changed
}
