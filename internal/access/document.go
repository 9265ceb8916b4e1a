package access

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

const (
	// lookEvery is how long a change of a document by another process may pass unseen.
	lookEvery = 250 * time.Millisecond
	// missEvery bounds how often a request that is let in by nothing known has the
	// document looked at: it may have been let in just now, by another process.
	missEvery = 10 * time.Millisecond
	// lookTime bounds a look, for which all requests wait.
	lookTime = 5 * time.Second
)

// document is a document of Documents as it was read last. Its owner guards it.
type document struct {
	docs statedir.Documents
	name string

	looked, missed time.Time
	version        string // that was read; "" none was there
	known          bool   // it was read without an error
}

// due reports whether it is time to look again.
func (d *document) due() bool { return time.Since(d.looked) >= lookEvery }

// missable reports whether a look is possible for something that was not there.
func (d *document) missable() bool {
	now := time.Now()
	if now.Sub(d.missed) < missEvery {
		return false
	}
	d.missed = now
	return true
}

// look returns the text, nil if there is none, unless it is as it was read last.
func (d *document) look(ctx context.Context) (text []byte, changed bool, err error) {
	// What it finds is for all requests, not for this one.
	ctx, cancel := d.bound(ctx)
	defer cancel()
	d.looked = time.Now()
	defer func() {
		if d.known = err == nil; err != nil {
			d.looked = time.Now() // nobody waits for the same again so soon
		}
	}()
	if d.known {
		version, err := d.docs.Version(ctx, d.name)
		if err != nil || version == d.version {
			return nil, err != nil, err
		}
	}
	if text, d.version, err = d.docs.Read(ctx, d.name); d.version == "" {
		text = nil
	} else if text == nil {
		text = []byte{}
	}
	return text, true, err
}

// bound returns the context of what is done for a request and goes on without it.
func (d *document) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), lookTime)
}

func (d *document) where() string { return d.docs.Where(d.name) }
