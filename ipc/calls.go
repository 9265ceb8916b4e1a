package ipc

import (
	"encoding/json"
	"sync"
)

// calls are our own requests that have no answer yet. Their ids are 1, 2, 3, … and never used again, so that a late
// answer to a call that was given up cannot reach another one.
type calls struct {
	mu      sync.Mutex // guards the following
	last    int64
	waiting map[int64]chan answer // buffered; each gets exactly one answer, or is removed
	closed  error                 // set: there will be no more answers
}

type answer struct {
	result json.RawMessage
	err    error
}

func newCalls() *calls { return &calls{waiting: make(map[int64]chan answer)} }

func (c *calls) add() (int64, <-chan answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return 0, nil, c.closed
	}
	c.last++
	ch := make(chan answer, 1)
	c.waiting[c.last] = ch
	return c.last, ch, nil
}

// remove gives a call up. Its answer, if it comes, is counted as unknown.
func (c *calls) remove(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// settle hands an answer to its call; false if there is none.
func (c *calls) settle(id int64, a answer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch, ok := c.waiting[id]
	if ok {
		delete(c.waiting, id)
		ch <- a
	}
	return ok
}

// close fails all calls, and each later one, with cause.
func (c *calls) close(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = cause
	}
	for id, ch := range c.waiting {
		delete(c.waiting, id)
		ch <- answer{err: c.closed}
	}
}
