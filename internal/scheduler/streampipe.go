package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/schedule"
)

// roomTime is how long a call waits for room before it is answered that there is
// none: calls that wait keep others from being served.
const roomTime = time.Second

// inlet is what a worker has printed and its feed has not read. It holds what one
// call has brought.
type inlet struct {
	mu      sync.Mutex // guards what follows
	unread  []byte
	ended   bool          // nothing more is put in
	closed  bool          // nothing more is read
	changed chan struct{} // closed, and replaced, at each change
}

func newInlet() *inlet { return &inlet{changed: make(chan struct{})} }

// put waits for room until ctx ends, and reports whether p was taken.
func (i *inlet) put(ctx context.Context, p []byte) (taken bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.unread) > 0 && !i.closed && !i.ended {
		if !i.wait(ctx) {
			return false, nil
		}
	}
	if i.closed || i.ended {
		return false, io.ErrClosedPipe
	}
	i.unread = p
	i.tell()
	return true, nil
}

// wait returns when something has changed; false if ctx has ended. The mutex is
// held.
func (i *inlet) wait(ctx context.Context) bool {
	changed := i.changed
	i.mu.Unlock()
	defer i.mu.Lock()
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

func (i *inlet) tell() {
	close(i.changed)
	i.changed = make(chan struct{})
}

// end says that the worker prints nothing more.
func (i *inlet) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	i.tell()
}

// Read implements io.Reader.
func (i *inlet) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.unread) == 0 && !i.ended && !i.closed {
		i.wait(context.Background()) // Close ends it
	}
	switch {
	case i.closed:
		return 0, io.ErrClosedPipe
	case len(i.unread) == 0:
		return 0, io.EOF
	}
	n := copy(p, i.unread)
	i.unread = i.unread[n:]
	i.tell()
	return n, nil
}

// Close implements io.Closer, for the reader.
func (i *inlet) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.tell()
	return nil
}

// outlet is the standard input of a worker that a core runs.
type outlet struct {
	ctx   context.Context
	close context.CancelFunc
	st    *streaming
	run   *schedule.Run
	fleet *fleet
}

func newOutlet(st *streaming, r *schedule.Run, f *fleet) *outlet {
	ctx, cancel := context.WithCancel(st.ctx)
	return &outlet{ctx: ctx, close: cancel, st: st, run: r, fleet: f}
}

// endLine is how a pipeline.EndLine begins.
const endLine = `{"type":"end",`

// Write returns when all of p, a line, is queued for the worker.
func (o *outlet) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte(endLine)) {
		o.st.ending.Store(true)
	}
	for piece := range slices.Chunk(p, ipc.MaxStream) {
		for full := true; full; {
			var r ipc.StreamResult
			call, cancel := context.WithTimeout(o.ctx, writeTime)
			err := o.fleet.call(call, o.run.Core, ipc.MethodStreamWrite, ipc.StreamWrite{Job: o.run.Entry.ID, Attempt: o.run.Attempt, Data: piece}, &r)
			cancel()
			if err == nil && r.Full {
				err = pause(o.ctx, unreadTime)
			}
			if err != nil {
				return 0, fmt.Errorf("write to the worker of job %s: %w", o.run.Entry.ID, err)
			}
			full = r.Full
		}
	}
	return len(p), nil
}

// unreadTime is how soon a line is offered again to a worker that has too many
// unread.
const unreadTime = 50 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends a Write that is under way, and all later ones.
func (o *outlet) Close() error {
	o.close()
	return nil
}
