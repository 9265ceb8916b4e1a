package ipc

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// outFrame is one frame on its way out.
type outFrame struct {
	bytes []byte

	// stream names the frames whose drops are counted together, those of one run for example. It is empty unless the frame
	// may be dropped or is the stream's last.
	stream    string
	droppable bool

	patient bool // may linger in the outbox, as a droppable one may
}

// outbox is the bounded queue between all senders and the one goroutine that writes. Frames leave in the order in which
// they were queued. When it is full, the oldest droppable frame is dropped for the new one, of whatever kind that is. If
// there is none, a droppable new frame is dropped itself, and any other waits. Between two calls it holds:
//
//	len(queue) ≤ limit
//	len(waiters) > 0  ⇒  len(queue) = limit and no frame in queue is droppable
//	gaps[s] = frames of stream s dropped since the last one of s was written
type outbox struct {
	limit   int
	linger  time.Duration // how long a patient frame may wait for others to be written with it
	drained chan struct{} // closed by the writer when it ends
	patient atomic.Bool   // see Peer.SetPatient

	mu       sync.Mutex // guards the following
	filled   sync.Cond  // signalled at each change that the writer may wait for
	queue    *list.List // of outFrame
	progress *list.List // of *list.Element: the droppable frames in queue, oldest first
	waiters  *list.List // of *waiter, first come first served
	due      bool       // the queue is written now; else when the timer of a lingering frame ends
	lingers  bool       // that timer runs
	gaps     map[string]int
	dropped  uint64 // frames, since the outbox was made
	closed   error  // set: put fails with it
	failed   bool   // set: next returns nothing more
}

type waiter struct {
	frame outFrame
	done  chan error // buffered; nil when the frame was queued
}

func newOutbox(limit int) *outbox {
	o := &outbox{limit: limit, drained: make(chan struct{}),
		queue: list.New(), progress: list.New(), waiters: list.New(), gaps: make(map[string]int)}
	o.filled.L = &o.mu
	return o
}

// put queues a frame. It waits for room no longer than limit (then ErrHung) or until ctx ends (then its cause). While the
// outbox is patient, limit does not count.
func (o *outbox) put(ctx context.Context, f outFrame, limit time.Duration) error {
	place, w, err := o.offer(f)
	if w == nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for err == nil {
		select {
		case err := <-w.done:
			return err
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-timer.C:
			if err = ErrHung; o.patient.Load() {
				err = nil
				timer.Reset(limit)
			}
		}
	}
	if o.withdraw(place) {
		return err
	}
	return <-w.done
}

// offer queues the frame at once or, if there is no room, a waiter for it.
func (o *outbox) offer(f outFrame) (*list.Element, *waiter, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed != nil:
		return nil, nil, o.closed
	case o.queue.Len() < o.limit || o.evictLocked():
		o.pushLocked(f)
		return nil, nil, nil
	case f.droppable:
		o.gaps[f.stream]++
		o.dropped++
		return nil, nil, nil
	}
	w := &waiter{frame: f, done: make(chan error, 1)}
	return o.waiters.PushBack(w), w, nil
}

// withdraw gives up waiting; it is false if the wait has just ended by itself.
func (o *outbox) withdraw(place *list.Element) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := place.Value.(*waiter)
	if len(w.done) > 0 {
		return false
	}
	o.waiters.Remove(place)
	return true
}

// evictLocked drops the oldest droppable frame, if there is one.
func (o *outbox) evictLocked() bool {
	oldest := o.progress.Front()
	if oldest == nil {
		return false
	}
	o.progress.Remove(oldest)
	f := o.queue.Remove(oldest.Value.(*list.Element)).(outFrame)
	o.gaps[f.stream]++
	o.dropped++
	return true
}

func (o *outbox) pushLocked(f outFrame) {
	place := o.queue.PushBack(f)
	if f.droppable {
		o.progress.PushBack(place)
	}
	// A burst is written at once: it has enough frames, and must not fill the queue while they wait.
	if (f.droppable || f.patient) && o.linger > 0 && !o.due && o.queue.Len() < o.limit/8 {
		if !o.lingers {
			o.lingers = true
			time.AfterFunc(o.linger, o.endLinger)
		}
		return
	}
	o.due = true
	o.filled.Signal()
}

func (o *outbox) endLinger() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lingers = false
	o.due = o.queue.Len() > 0
	o.filled.Signal()
}

// next waits for the oldest frame. It is false when the outbox has failed, or is closed and empty.
//
// A frame of a stream gets the number of dropped frames of its stream here, as late as possible. All of those stood before
// it: frames are dropped from the front, and a new one is dropped only when no droppable one is queued.
func (o *outbox) next() ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for (o.queue.Len() == 0 || !o.due) && o.closed == nil {
		o.filled.Wait()
	}
	return o.takeLocked()
}

// another is next for a frame that can be written together with the n before it; false if there is none now. Frames that
// are being written no longer count against limit, so n stays below an eighth of it.
func (o *outbox) another(n int) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n >= o.limit/8 {
		return nil, false
	}
	return o.takeLocked()
}

func (o *outbox) takeLocked() ([]byte, bool) {
	if o.failed || o.queue.Len() == 0 {
		return nil, false
	}
	f := o.queue.Remove(o.queue.Front()).(outFrame)
	if f.droppable {
		o.progress.Remove(o.progress.Front())
	}
	if w := o.waiters.Front(); w != nil {
		o.waiters.Remove(w)
		o.pushLocked(w.Value.(*waiter).frame)
		w.Value.(*waiter).done <- nil
	}
	o.due = o.queue.Len() > 0
	if gap := o.gaps[f.stream]; gap > 0 && f.stream != "" {
		delete(o.gaps, f.stream)
		return addDropped(f.bytes, gap), true
	}
	return f.bytes, true
}

// close makes each later put fail with cause. Frames that are queued, or wait, are still written.
func (o *outbox) close(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed == nil {
		o.closed = cause
	}
	o.filled.Signal()
}

// fail drops everything. Each put that waits, and each later one, fails with cause; the first cause counts.
func (o *outbox) fail(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failed {
		o.failed, o.closed = true, cause
	}
	o.queue.Init()
	o.progress.Init()
	for w := o.waiters.Front(); w != nil; w = o.waiters.Front() {
		o.waiters.Remove(w).(*waiter).done <- o.closed
	}
	o.filled.Signal()
}

func (o *outbox) droppedCount() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}
