package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// SilentError says that a connection was cut because the other end was not heard for a time.
type SilentError struct{ For time.Duration }

func (e *SilentError) Error() string {
	return fmt.Sprintf("the other side was silent for %v", e.For.Round(time.Millisecond))
}

const (
	readLimit = dataHead + MaxFrame
	keepBuf   = 64 << 10 // bytes of a buffer that is kept for the next message
	byeTime   = time.Second
)

// conn is one connection of a link: a goroutine that reads and one that writes. The reader never waits for the application
// nor for the writer.
type conn struct {
	link  *Link
	ws    *websocket.Conn
	gone  chan struct{} // closed when both goroutines have ended
	poke  chan struct{} // capacity 1: the writer has something to look at
	alive atomic.Int64  // ns since link.origin at which the last byte arrived, or the connection began

	// A connection that ends has a cause first, may say it to the other end, and is cut then.
	cause context.Context
	fail  context.CancelCauseFunc
	ctx   context.Context
	cut   context.CancelFunc

	// Of the writer.
	next      uint64 // the number of the next frame to send; guarded by link.mu
	fresh     bool   // the windows have not been told yet
	ackAt     time.Time
	heartbeat time.Time // when the next one is due
	buf       []byte
}

// attach makes ws the link's connection in place of the one that it had. The other end has said that it received everything
// up to received, and was told the same of this end, told. The link owns ws from now on, also if an error is returned.
func (l *Link) attach(ws *websocket.Conn, received, told uint64) (*conn, error) {
	ws.SetReadLimit(readLimit)
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.Err()
	if err == nil {
		err = l.plausible(received)
	}
	if err == nil {
		err = l.acknowledge(HeaderReceived, received)
	}
	if err != nil {
		ws.CloseNow() //nolint:errcheck // nothing was said on it
		return nil, err
	}
	c := &conn{link: l, ws: ws, gone: make(chan struct{}), poke: make(chan struct{}, 1), next: received + 1, fresh: true}
	c.cause, c.fail = context.WithCancelCause(context.Background())
	c.ctx, c.cut = context.WithCancel(context.Background())
	c.alive.Store(int64(l.now()))
	if l.expiry != nil {
		l.expiry.Stop()
	}
	if l.conn != nil {
		l.conn.cancel(errStale)
	}
	l.conn, l.told, l.owed, l.unacked = c, told, l.received > told, 0
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		c.run()
	}()
	return c, nil
}

// plausible says whether a session can go on with one that has received that much. l.mu is held.
func (l *Link) plausible(received uint64) error {
	if received < l.acked || received > l.written {
		return wrong(HeaderReceived, "it is %d; of what was sent, %d to %d can have been received", received, l.acked, l.written)
	}
	return nil
}

// detach is the end of a connection: the link is without one, unless a newer one is there.
func (l *Link) detach(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != c {
		return
	}
	l.conn = nil
	if l.keepFor > 0 && l.ctx.Err() == nil {
		l.expiry = time.AfterFunc(l.keepFor, l.expire)
	}
}

// expire ends a link that got no connection in time.
func (l *Link) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		l.endLocked(fmt.Errorf("%w: %v", ErrExpired, l.keepFor), "")
	}
}

func (c *conn) wake() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// cancel cuts the connection.
func (c *conn) cancel(err error) {
	c.fail(err)
	c.cut()
}

// err is why the connection has ended, nil if it has not.
func (c *conn) err() error { return context.Cause(c.cause) }

// run lives as long as the connection.
func (c *conn) run() {
	var others sync.WaitGroup
	others.Add(2)
	context.AfterFunc(c.ctx, func() {
		defer others.Done()
		c.ws.CloseNow() //nolint:errcheck // it may be closed already
	})
	go func() {
		defer others.Done()
		c.cancel(c.write())
	}()
	silence := c.watch()
	err := c.read()
	silence.Stop()
	c.fail(err)
	c.link.detach(c)
	if bad := (*ProtocolError)(nil); errors.As(c.err(), &bad) {
		c.ws.Close(websocket.StatusProtocolError, closeReason(bad)) //nolint:errcheck // cut next
	}
	c.cut()
	others.Wait()
	close(c.gone)
}

// closeReason is an error as the reason of a close frame, which has at most 123 bytes.
func closeReason(err error) string {
	s := cutReason(err.Error())
	for len(s) > 120 {
		s = s[:len(s)-1]
	}
	return cutReason(s)
}

// watch cuts the connection when nothing was heard for the limit, also while a write hangs.
func (c *conn) watch() *time.Timer {
	var mu sync.Mutex // held until there is a timer to reset
	mu.Lock()
	defer mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(watchEvery, func() {
		mu.Lock()
		defer mu.Unlock()
		limit := time.Duration(c.link.silence.Load())
		idle := time.Duration(int64(c.link.now()) - c.alive.Load())
		if idle >= limit {
			c.cancel(&SilentError{For: idle})
		} else if c.ctx.Err() == nil {
			timer.Reset(min(limit-idle, watchEvery))
		}
	})
	return timer
}

// watchEvery is how often the silence is looked at: what it may be can change.
const watchEvery = time.Second

// read takes messages until the connection ends, and returns why.
func (c *conn) read() error {
	var buf []byte
	for {
		typ, r, err := c.ws.Reader(context.Background())
		if err != nil {
			return c.why("read", err)
		}
		if typ != websocket.MessageBinary {
			return wrong("message", "it is text; it must be binary")
		}
		if buf, err = c.readAll(r, buf[:0]); err != nil {
			return c.why("read", err)
		}
		m, err := decode(buf)
		if err == nil {
			err = c.link.receive(c, m)
		}
		if err != nil {
			return err
		}
		if m.kind == kindBye {
			err := fmt.Errorf("%w: %s", ErrGone, m.payload)
			c.link.end(err, "")
			return err
		}
		if cap(buf) > keepBuf {
			buf = nil
		}
	}
}

// readAll reads one message, whose size the connection bounds. Each part of it says that the other end lives.
func (c *conn) readAll(r io.Reader, buf []byte) ([]byte, error) {
	for {
		buf = slices.Grow(buf, 512)
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		now := int64(c.link.now())
		c.alive.Store(now)
		c.link.heard.Store(now)
		if err == io.EOF { //nolint:errorlint // the end of a message, as io.Reader says it
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// why is the cause of an error of the connection.
func (c *conn) why(what string, err error) error {
	if cause := c.err(); cause != nil {
		return cause
	}
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return wrong("message", "it has more than %d bytes", readLimit)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// write sends what there is until the connection ends, and returns why.
func (c *conn) write() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		m, wait := c.pick(time.Now())
		if m.kind == 0 {
			timer.Reset(wait)
			select {
			case <-c.ctx.Done():
				return nil
			case <-c.poke:
			case <-timer.C:
			}
			continue
		}
		c.buf = m.appendTo(c.buf[:0])
		if err := c.ws.Write(context.Background(), websocket.MessageBinary, c.buf); err != nil {
			return c.why("write", err)
		}
		if m.kind == kindBye {
			c.ws.Close(websocket.StatusNormalClosure, "") //nolint:errcheck // cut next
			return c.link.Err()
		}
		if cap(c.buf) > keepBuf {
			c.buf = nil
		}
	}
}

// pick is the next message to send, or how long there is none. What keeps the session alive goes before frames.
func (c *conn) pick(now time.Time) (message, time.Duration) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		if l.silent {
			return message{}, byeTime // cancelled already
		}
		return message{kind: kindBye, payload: []byte(l.bye)}, 0
	}
	if !now.Before(c.heartbeat) {
		c.heartbeat = now.Add(l.heartbeat)
		m := message{kind: kindHeartbeat, reading: l.now()}
		// In this order, and with l.mu held: what came while this process stood still is not confirmed by what it knew before.
		if l.limits.Confirm() && !l.peer.IsZero() {
			m.echo = l.reading
			m.held = uint64(max(time.Since(l.peer), 0))
		}
		return c.withAck(m), 0
	}
	if l.received > l.told && c.ackAt.IsZero() {
		c.ackAt = now.Add(l.limits.AckDelay)
	}
	if l.owed || !c.ackAt.IsZero() && !now.Before(c.ackAt) {
		return c.withAck(message{kind: kindAck}), 0
	}
	if m, ok := c.news(); ok {
		return m, 0
	}
	if c.next = max(c.next, l.acked+1); c.next-l.acked-1 < uint64(len(l.kept)) {
		k := l.kept[c.next-l.acked-1]
		m := message{kind: k.kind, channel: k.channel, number: c.next, payload: k.payload}
		l.written = max(l.written, c.next)
		c.next++
		return c.withAck(m), 0
	}
	until := c.heartbeat
	if !c.ackAt.IsZero() && c.ackAt.Before(until) {
		until = c.ackAt
	}
	return message{}, until.Sub(now)
}

// withAck has a message take the acknowledgement along. link.mu is held.
func (c *conn) withAck(m message) message {
	l := c.link
	m.ack, l.told, l.owed, l.unacked, c.ackAt = l.received, l.received, false, 0, time.Time{}
	return m
}

// news is a window that the other end has to be told of.
func (c *conn) news() (message, bool) {
	if c.fresh {
		c.fresh = false
		for _, ch := range c.link.channels {
			ch.again()
		}
	}
	if c.link.news.Load() > 0 {
		for _, ch := range c.link.channels {
			if m, ok := ch.news(); ok {
				return m, true
			}
		}
	}
	return message{}, false
}
