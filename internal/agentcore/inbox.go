package agentcore

import (
	"sync"

	"github.com/agentsched/agentsched/worker"
)

// maxInbox bounds what may wait for a run's session.
const maxInbox = 1024

// inbox brings a run's session what others have for it, in the order in which it was put in.
// It holds it until the session takes it, so that who puts it in never waits.
type inbox struct {
	out chan worker.Input // the Runner's end

	mu     sync.Mutex // guards what follows
	list   []worker.Input
	feeds  bool // a goroutine gives list to out
	closed chan struct{}
}

func newInbox() *inbox { return &inbox{out: make(chan worker.Input), closed: make(chan struct{})} }

// put adds what is for the session; false if there is no room, or the run is over.
func (b *inbox) put(in worker.Input) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.closed:
		return false
	default:
	}
	if len(b.list) >= maxInbox {
		return false
	}
	b.list = append(b.list, in)
	if !b.feeds {
		b.feeds = true
		go b.feed()
	}
	return true
}

// feed gives the session what there is, and ends when there is no more.
func (b *inbox) feed() {
	for {
		b.mu.Lock()
		if len(b.list) == 0 {
			b.feeds, b.list = false, nil
			b.mu.Unlock()
			return
		}
		next := b.list[0]
		b.list = b.list[1:]
		b.mu.Unlock()
		select {
		case b.out <- next:
		case <-b.closed:
			return
		}
	}
}

// close ends it: nobody takes anything out any more.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.closed)
}
