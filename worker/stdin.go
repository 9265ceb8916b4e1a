package worker

import (
	"errors"
	"io"
	"sync"
)

// maxUnread is how much a program may leave unread of what it is told, in bytes.
const maxUnread = 4 << 20

// ErrUnread is wrapped by what refuses a line for a program that has too many
// unread ones.
var ErrUnread = errors.New("the program does not read its standard input")

// feed is a program's standard input for what it is told while it runs: writing
// to it never blocks, one goroutine writes it on. A program that does not read therefore
// delays no writer, and costs at most maxUnread of memory.
type feed struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex // guards what follows
	unread []byte
	last   bool // nothing follows unread
	closed bool
}

func newFeed() *feed { return &feed{wake: make(chan struct{}, 1)} }

// Write queues p as a whole or not at all. The error is io.ErrClosedPipe if nothing
// can follow any more, else ErrUnread.
func (f *feed) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fits(len(p)); err != nil {
		return 0, err
	}
	f.unread = append(f.unread, p...)
	f.poke()
	return len(p), nil
}

// room returns why n bytes cannot be queued; nil if they can.
func (f *feed) room(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fits(n)
}

func (f *feed) fits(n int) error {
	switch {
	case f.closed || f.last:
		return io.ErrClosedPipe
	case len(f.unread)+n > maxUnread:
		return ErrUnread
	}
	return nil
}

// finish ends copyTo after what is queued, and with it the program's standard input.
func (f *feed) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = true
	f.poke()
}

// close ends copyTo; what is queued by then may be lost.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.unread = true, nil
	f.poke()
}

func (f *feed) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// copyTo writes on what is queued until close, or until w takes no more.
func (f *feed) copyTo(w io.Writer) {
	for range f.wake {
		f.mu.Lock()
		chunk, last, closed := f.unread, f.last, f.closed
		f.unread = nil
		f.mu.Unlock()
		if closed {
			return
		}
		if _, err := w.Write(chunk); err != nil || last {
			f.close()
			return
		}
	}
}
