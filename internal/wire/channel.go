package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Channel is one stream of frames in each direction. Frames arrive in the order in which they were sent, once. A sender may
// divide its stream by ends, for instance when the agentcore behind it is replaced.
type Channel struct {
	link   *Link
	number uint16
	turn   *semaphore.Weighted // 1: sends of the channel keep their order
	window *semaphore.Weighted // bytes that may be on their way

	mu       sync.Mutex    // guards what follows; link.mu may be held, and is not taken under it
	out      uint64        // bytes sent since the session began
	widened  uint64        // of them, those that the other end's application has taken
	queue    []kept        // received and not taken
	in       uint64        // bytes received since the session began
	taken    uint64        // of them, those that were taken
	toldEnd  uint64        // what the other end was told of that
	ready    chan struct{} // capacity 1: something is in the queue
	announce bool          // a window message has to be sent
}

func newChannel(l *Link, n uint16) *Channel {
	return &Channel{link: l, number: n, turn: semaphore.NewWeighted(1), window: semaphore.NewWeighted(Window), ready: make(chan struct{}, 1)}
}

// Number is the number of the channel.
func (c *Channel) Number() int { return int(c.number) }

// Send sends one frame, of 1 to MaxFrame bytes, which it copies. It waits while Window bytes of the channel have not been
// taken at the other end, or Limits.Resend bytes of the link have not been acknowledged. nil means that the frame arrives if
// the session goes on; that it was dealt with is for the application to say. The error is the link's (see Link.Err), the
// cause of ctx, or says that the frame's size is wrong; the frame was not sent then.
func (c *Channel) Send(ctx context.Context, frame []byte) error {
	if len(frame) == 0 || len(frame) > MaxFrame {
		return fmt.Errorf("send on channel %d: the frame has %d bytes; it must have 1 to %d", c.number, len(frame), MaxFrame)
	}
	return c.send(ctx, kept{kind: kindData, channel: c.number, payload: append([]byte(nil), frame...)})
}

// End divides the stream: whoever receives hears of it, and why, after all frames sent before, and then goes on with what is
// sent after it. It waits like Send. A reason longer than 1 KiB is cut.
func (c *Channel) End(ctx context.Context, reason string) error {
	return c.send(ctx, kept{kind: kindEnd, channel: c.number, payload: []byte(cutReason(reason))})
}

func (c *Channel) send(ctx context.Context, k kept) error {
	cost := k.cost()
	if err := c.acquire(ctx, c.turn, 1); err != nil {
		return err
	}
	defer c.turn.Release(1)
	if err := c.acquire(ctx, c.window, cost); err != nil {
		return err
	}
	if err := c.acquire(ctx, c.link.room, cost); err != nil {
		c.window.Release(cost)
		return err
	}
	c.mu.Lock()
	c.out += uint64(cost)
	c.mu.Unlock()
	return c.link.keep(k)
}

// acquire waits for n of s, until ctx or the link ends.
func (c *Channel) acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
	err := c.link.Err()
	if err == nil && ctx.Err() == nil && s.TryAcquire(n) {
		return nil
	}
	if err == nil {
		both, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(c.link.ctx, func() { cancel(nil) })()
		if s.Acquire(both, n) == nil {
			return nil
		}
		err = c.link.Err()
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("send on channel %d: %w", c.number, err)
}

// EndError is what Recv returns when the other side has ended its stream. The next Recv goes on with what follows.
// It wraps io.EOF.
type EndError struct{ Reason string }

func (e *EndError) Error() string { return "the other side has ended the stream: " + e.Reason }

func (e *EndError) Unwrap() error { return io.EOF }

// Recv waits for the next frame. Frames that have arrived are returned also after the link has ended; then the error is the
// link's (see Link.Err). It is the cause of ctx if that ends before, and an *EndError at the end of a stream.
func (c *Channel) Recv(ctx context.Context) ([]byte, error) {
	for {
		k, ok, more := c.take()
		if more {
			c.signal() // for another receiver
		}
		switch {
		case ok && k.kind == kindEnd:
			return nil, &EndError{Reason: string(k.payload)}
		case ok:
			return k.payload, nil
		}
		var err error
		select {
		case <-c.ready:
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-c.link.Done():
			if k, ok, _ := c.take(); ok {
				if k.kind == kindEnd {
					return nil, &EndError{Reason: string(k.payload)}
				}
				return k.payload, nil
			}
			err = c.link.Err()
		}
		return nil, fmt.Errorf("receive on channel %d: %w", c.number, err)
	}
}

// take takes the first frame of the queue, if there is one, and tells the other end now and then.
func (c *Channel) take() (k kept, ok, more bool) {
	c.mu.Lock()
	if len(c.queue) == 0 {
		c.mu.Unlock()
		return kept{}, false, false
	}
	k = c.queue[0]
	c.queue[0] = kept{}
	if c.queue = c.queue[1:]; len(c.queue) == 0 {
		c.queue = nil
	}
	more = len(c.queue) > 0
	c.taken += uint64(k.cost())
	// A quarter leaves room for the longest frame when everything was taken and not told.
	due := !c.announce && c.taken-c.toldEnd >= Window/4
	if due {
		c.announce = true
		c.link.news.Add(1)
	}
	c.mu.Unlock()
	if due {
		c.link.wake()
	}
	return k, true, more
}

// put queues what has arrived.
func (c *Channel) put(k kept) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting := c.in - c.taken + uint64(k.cost()); waiting > Window {
		return wrong(k.kind, "channel %d has %d bytes that were not taken; the most is %d", c.number, waiting, Window)
	}
	c.in += uint64(k.cost())
	c.queue = append(c.queue, k)
	c.signal()
	return nil
}

func (c *Channel) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// widen hears how much the other end's application has taken.
func (c *Channel) widen(taken uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if taken > c.out {
		return wrong(kindWindow, "%d bytes of channel %d were taken; %d were sent", taken, c.number, c.out)
	}
	if taken > c.widened {
		c.window.Release(int64(taken - c.widened))
		c.widened = taken
	}
	return nil
}

// again has all told anew, on a new connection.
func (c *Channel) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken > 0 && !c.announce {
		c.announce = true
		c.link.news.Add(1)
	}
}

// news returns what has to be told of the channel, if something has.
func (c *Channel) news() (message, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.announce {
		return message{}, false
	}
	c.announce, c.toldEnd = false, c.taken
	c.link.news.Add(-1)
	return message{kind: kindWindow, channel: c.number, taken: c.taken}, true
}

var errStale = errors.New("a newer connection of the session is there")
