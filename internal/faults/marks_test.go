//go:build linux

package faults

import "sync"

// marks counts what happens in a scenario: the scheduler's updates, the words
// of workers. Faults strike at marks, so that they strike in the middle of work
// however fast the machine is.
type marks struct {
	mu   sync.Mutex
	n    int
	more chan struct{} // closed and replaced at each mark
}

func newMarks() *marks { return &marks{more: make(chan struct{})} }

func (m *marks) add() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	close(m.more)
	m.more = make(chan struct{})
}

// now returns how many there were, and a channel that is closed at the next.
func (m *marks) now() (int, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n, m.more
}
