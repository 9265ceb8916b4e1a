package ipc

import (
	"sync"
	"time"
)

// inbox holds what the other side sent and no handler has taken yet: notifications for one goroutine, in order, and
// requests for a bounded number of goroutines.
//
// Two bounds limit its bytes. A frame is read only while
//
//	bytes < soft  or  awaiting > 0 and bytes < hard
//
// At the soft bound reading stops, so that the other side waits, or drops its progress. But while a call here waits for
// the other side, for an answer or for room in the outbox, reading must go on: the answer stands behind what is not read
// yet, and the one that waits may be the handler that should empty the inbox. The hard bound limits that, since a handler
// that makes a call for each notification of a flood reads in more than it handles. An inbox that stays at the hard bound
// for the hang limit ends the peer with ErrOverrun. So two peers never wait for each other in a circle below the hard
// bound, and at it for the hang limit only.
type inbox struct {
	soft, hard int // bytes
	hang       time.Duration
	maxRunning int
	serve      func() // starts a goroutine that serves requests; set before the first one is added

	mu       sync.Mutex // guards the following
	changed  sync.Cond  // broadcast at each change that may make room, or leave no answer owed
	arrived  sync.Cond  // signalled for a notification: its handler must not wake up for each request
	notes    []*inbound
	requests []*inbound
	bytes    int
	running  int                 // goroutines that serve requests
	ids      map[string]struct{} // requests queued or being served
	owed     int                 // requests taken in whose answer is not queued yet
	awaiting int                 // calls and sends that wait for the other side
	closed   bool                // what arrives is dropped
}

// frameOverhead is about what a queued frame costs beside its own bytes, so that the number of tiny ones is bounded too.
const frameOverhead = 256

func newInbox(soft, maxRunning int, hang time.Duration) *inbox {
	b := &inbox{soft: soft, hard: 16 * soft, maxRunning: maxRunning, hang: hang, ids: make(map[string]struct{})}
	b.changed.L, b.arrived.L = &b.mu, &b.mu
	return b
}

// await notes that a call or a send waits for the other side, until the returned function is called.
func (b *inbox) await() (done func()) {
	b.addAwaiting(1)
	return func() { b.addAwaiting(-1) }
}

func (b *inbox) addAwaiting(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaiting += n
	b.changed.Broadcast()
}

// addNote queues a notification, waiting for room. In a closed inbox it is dropped.
func (b *inbox) addNote(m *inbound) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.waitRoomLocked(); err != nil || b.closed {
		return err
	}
	b.notes = append(b.notes, m)
	b.bytes += m.size + frameOverhead
	b.arrived.Signal()
	return nil
}

// addRequest queues a request, waiting for room, and starts a goroutine for it if there may be one more. A request with
// the id of one that has no answer yet is dropped, and copied is set: the other side would take a refusal for the answer
// to the earlier one. In a closed inbox it is dropped as well.
func (b *inbox) addRequest(m *inbound) (copied bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.waitRoomLocked(); err != nil || b.closed {
		return false, err
	}
	if m.refusal == nil {
		key := m.key()
		if _, taken := b.ids[key]; taken {
			return true, nil
		}
		b.ids[key] = struct{}{}
	}
	b.requests = append(b.requests, m)
	b.owed++
	b.bytes += m.size + frameOverhead
	if b.running < b.maxRunning {
		b.running++
		b.serve() // under mu: none is started after close has returned, so the goroutines can be waited for
	}
	return false, nil
}

func (b *inbox) waitRoomLocked() error {
	stuck := false
	var timer *time.Timer
	for !b.closed && b.bytes >= b.soft && (b.awaiting == 0 || b.bytes >= b.hard) {
		if b.bytes < b.hard {
			b.changed.Wait()
			continue
		}
		if stuck {
			return ErrOverrun
		}
		if timer == nil {
			timer = time.AfterFunc(b.hang, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				stuck = true
				b.changed.Broadcast()
			})
			defer timer.Stop()
		}
		b.changed.Wait()
	}
	return nil
}

// nextNote waits for the oldest notification; false when the inbox is closed and has none.
func (b *inbox) nextNote() (*inbound, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.notes) == 0 && !b.closed {
		b.arrived.Wait()
	}
	return b.popLocked(&b.notes)
}

// nextRequest gives a serving goroutine its next request; false ends that goroutine.
func (b *inbox) nextRequest() (*inbound, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, ok := b.popLocked(&b.requests)
	if !ok {
		b.running--
	}
	return m, ok
}

func (b *inbox) popLocked(queue *[]*inbound) (*inbound, bool) {
	if len(*queue) == 0 {
		return nil, false
	}
	m := (*queue)[0]
	(*queue)[0] = nil
	*queue = (*queue)[1:]
	b.bytes -= m.size + frameOverhead
	b.changed.Broadcast()
	return m, true
}

// release frees the id of a request. It is called before the answer is sent, since the other side may use the id again
// as soon as it has the answer.
func (b *inbox) release(m *inbound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ids, m.key())
}

// answered notes that the answer of a request is queued, or cannot be.
func (b *inbox) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owed--
	b.changed.Broadcast()
}

// awaitAnswered waits until no request owes its answer, but no longer than the hang limit.
func (b *inbox) awaitAnswered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	late := false
	timer := time.AfterFunc(b.hang, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		late = true
		b.changed.Broadcast()
	})
	defer timer.Stop()
	for b.owed > 0 && !late && !b.closed {
		b.changed.Wait()
	}
}

// close drops what arrives from now on. What is queued is still handled.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.changed.Broadcast()
	b.arrived.Broadcast()
}

// discard closes the inbox and drops what is queued.
func (b *inbox) discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.notes, b.requests, b.bytes = nil, nil, 0
	b.changed.Broadcast()
	b.arrived.Broadcast()
}
