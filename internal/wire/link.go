package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

var (
	// ErrClosed is why a link ended that this end has closed.
	ErrClosed = errors.New("link is closed")
	// ErrGone is why a link ended that the other end has closed, or has no longer.
	ErrGone = errors.New("link was ended by the other side")
	// ErrRenewed is why a link ended in whose place there is a new session of the same node.
	ErrRenewed = errors.New("link was replaced by a new session")
	// ErrExpired is why a link ended that was without a connection for too long.
	ErrExpired = errors.New("link had no connection for too long")
)

// Limits are the bounds of a link. A zero value stands for the default, which stands after the semicolon.
type Limits struct {
	// Resend is how many bytes of frames may be kept until the other end has acknowledged them, all channels together; 4 MiB.
	// At least Window.
	Resend int64
	// Heartbeat is how often a heartbeat is sent; 5 s.
	Heartbeat time.Duration
	// Silence is for how long the other end may be silent before the connection is cut; 20 s. Each byte received counts.
	Silence time.Duration
	// AckDelay is for how long an acknowledgement may wait for a frame that takes it along; 20 ms.
	AckDelay time.Duration
	// Handshake is for how long dialing one address may take; 10 s.
	Handshake time.Duration
	// Clock is the time since some origin, by which a link is judged: a lease has to be held by one that goes on while the
	// host sleeps. nil means the monotonic clock, which may not.
	Clock func() time.Duration
	// Confirm reports whether this end may confirm what it hears of the other end now: heartbeats do not answer those of the
	// other end while it does not. It must not wait. nil means always.
	Confirm func() bool
}

func (l Limits) orDefaults() (Limits, error) {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	if l.Resend == 0 {
		l.Resend = 4 << 20
	}
	set(&l.Heartbeat, 5*time.Second)
	if l.Confirm == nil {
		l.Confirm = func() bool { return true }
	}
	set(&l.Silence, 20*time.Second)
	set(&l.AckDelay, 20*time.Millisecond)
	set(&l.Handshake, 10*time.Second)
	if l.Clock == nil {
		base := time.Now()
		l.Clock = func() time.Duration { return time.Since(base) }
	}
	switch {
	case l.Resend < Window:
		return l, fmt.Errorf("limits: resend is %d bytes; it must be at least %d", l.Resend, Window)
	case l.Heartbeat < 0 || l.AckDelay < 0 || l.Handshake < 0:
		return l, fmt.Errorf("limits: heartbeat %v, ack delay %v and handshake %v must not be negative", l.Heartbeat, l.AckDelay, l.Handshake)
	case l.Silence < 2*l.Heartbeat:
		return l, fmt.Errorf("limits: silence is %v; it must be at least twice the heartbeat, %v", l.Silence, l.Heartbeat)
	}
	return l, nil
}

// Link is one session between a node and a scheduler. It outlives connections: what was sent while there is none, or was on
// its way when one was cut, arrives with the next one, in order and once. It ends for good with Close, with the session at
// the other end, or when it is replaced. Its methods may be called from any goroutine.
type Link struct {
	id     string
	node   string
	limits Limits
	// keepFor is for how long the link is kept without a connection; 0 means for as long as its owner does.
	keepFor time.Duration
	origin  time.Duration // when it began, by Limits.Clock: what readings are counted from

	ctx    context.Context // ends with the link; its cause is Err
	cancel context.CancelCauseFunc
	room   *semaphore.Weighted // bytes of Limits.Resend
	heard  atomic.Int64        // ns since origin at which the last byte arrived; 0 before
	news   atomic.Int32        // channels whose window has to be told
	wg     sync.WaitGroup      // goroutines of connections

	silence atomic.Int64 // Limits.Silence, or as SetPace says; connections that begin later keep it

	channels []*Channel // guarded by their own mu

	mu         sync.Mutex    // guards what follows; taken before a channel's
	heartbeat  time.Duration // Limits.Heartbeat, or as SetPace says
	conn       *conn         // nil without a connection
	expiry     *time.Timer
	kept       []kept // what is not acknowledged; the first has number acked+1
	acked      uint64
	written    uint64 // the highest number that a connection took
	received   uint64
	unacked    int64 // bytes received since the last ack was sent
	owed       bool  // an ack has to be sent
	told       uint64
	duplicates uint64
	bye        string    // the last message, once the link has ended
	silent     bool      // there is nothing to say to the other end at the end
	peer       time.Time // when the last heartbeat arrived; zero before
	confirmed  uint64    // the reading at which the newest of our heartbeats was sent that the other end has answered; 0 before
	reading    uint64    // what it said
	roundTrip  time.Duration
}

// kept is a frame or an end that may have to be sent again.
type kept struct {
	kind    kind
	channel uint16
	payload []byte
}

func (k kept) cost() int64 { return int64(len(k.payload)) + frameCost }

// newLink makes a link without a connection; channels is how many it has.
func newLink(id, node string, channels int, limits Limits) *Link {
	l := &Link{id: id, node: node, limits: limits, origin: limits.Clock(), room: semaphore.NewWeighted(limits.Resend)}
	l.heartbeat = limits.Heartbeat
	l.silence.Store(int64(limits.Silence))
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	for n := range channels {
		l.channels = append(l.channels, newChannel(l, uint16(n)))
	}
	return l
}

// Session is the id of the session, for logs.
func (l *Link) Session() string { return l.id }

// Node is the name of the node.
func (l *Link) Node() string { return l.node }

// Channels is how many channels there are. Both ends have the same.
func (l *Link) Channels() int { return len(l.channels) }

// Channel is the channel with that number, nil if there is none.
func (l *Link) Channel(n int) *Channel {
	if n < 0 || n >= len(l.channels) {
		return nil
	}
	return l.channels[n]
}

// Done is closed when the link has ended, for the reason that Err says.
func (l *Link) Done() <-chan struct{} { return l.ctx.Done() }

// Err is nil until the link has ended. Then it wraps ErrClosed, ErrGone, ErrRenewed or ErrExpired.
func (l *Link) Err() error { return context.Cause(l.ctx) }

// Heard is what a link knows of the other end.
type Heard struct {
	At        time.Time     // when the last byte arrived; zero before the first
	Heartbeat time.Time     // when the last heartbeat arrived; zero before the first
	Reading   time.Duration // what that heartbeat said: the other end's monotonic time since its session began
	RoundTrip time.Duration // as the last heartbeat that answered one of ours told; 0 before
}

// LastHeard says when the other end was heard last.
func (l *Link) LastHeard() Heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := Heard{Heartbeat: l.peer, Reading: time.Duration(l.reading), RoundTrip: l.roundTrip}
	if at := l.heard.Load(); at != 0 {
		h.At = time.Now().Add(time.Duration(at) - time.Duration(l.now()))
	}
	return h
}

// SetPace changes how often a heartbeat is sent, and after which silence of the other end a connection is cut, which must be
// at least twice that. Both ends should do the same, or the quicker one finds the other silent.
func (l *Link) SetPace(heartbeat, silence time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heartbeat = heartbeat
	l.silence.Store(int64(max(silence, 2*heartbeat)))
	if l.conn != nil {
		l.conn.heartbeat = time.Time{} // one now: the next is as far away as is said here
		l.conn.wake()
	}
}

// Unconfirmed is how long ago, by Limits.Clock, the newest heartbeat was sent that the other end has answered, or the session
// was asked for: what is older than that the other end has heard. So a lease that the other end gives with each heartbeat that it
// receives has this age at most there.
func (l *Link) Unconfirmed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.now() - l.confirmed)
}

// Status is a look at a link.
type Status struct {
	Connected  bool
	Sent       uint64 // frames and ends, also those that have not left yet
	Acked      uint64 // of them
	Received   uint64 // frames and ends
	Duplicates uint64 // that arrived again and were dropped
}

// Status is how the link stands.
func (l *Link) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{Connected: l.conn != nil, Sent: l.acked + uint64(len(l.kept)), Acked: l.acked, Received: l.received, Duplicates: l.duplicates}
}

// Close ends the session at both ends; reason is for the log of the other one. What has not been acknowledged yet is dropped:
// the application's own words say when all has arrived. It returns at once; a connection gets a second to say it.
func (l *Link) Close(reason string) {
	if reason == "" {
		reason = "closed"
	}
	l.end(fmt.Errorf("%w: %s", ErrClosed, reason), reason)
}

// end ends the link. Without a reason for the other end it hears nothing but the end of the connection.
func (l *Link) end(err error, bye string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(err, bye)
}

func (l *Link) endLocked(err error, bye string) {
	if l.ctx.Err() != nil {
		return
	}
	l.bye, l.silent = cutReason(bye), bye == ""
	l.cancel(err)
	l.kept = nil
	if l.expiry != nil {
		l.expiry.Stop()
	}
	switch c := l.conn; {
	case c == nil:
	case l.silent:
		c.cancel(err)
	default:
		c.wake()
		late := time.AfterFunc(byeTime, func() { c.cancel(err) }) // a write may hang
		context.AfterFunc(c.ctx, func() { late.Stop() })
	}
}

// wait waits for all connections to end, once the link has.
func (l *Link) wait() { l.wg.Wait() }

// now is the time since the session began by this end's clock, in nanoseconds and never 0.
func (l *Link) now() uint64 { return uint64(max(l.limits.Clock()-l.origin, 1)) }

// keep numbers a frame and has it sent. Its room has been acquired.
func (l *Link) keep(k kept) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	l.kept = append(l.kept, k)
	if l.conn != nil {
		l.conn.wake()
	}
	return nil
}

// wake has the connection look for what is to be sent, if there is one.
func (l *Link) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.wake()
	}
}

// acknowledge forgets what the other end has received. l.mu is held.
func (l *Link) acknowledge(where any, ack uint64) error {
	if ack > l.written {
		return wrong(where, "it acknowledges number %d; the last one sent is %d", ack, l.written)
	}
	if ack <= l.acked || l.ctx.Err() != nil {
		return nil
	}
	n := ack - l.acked
	var bytes int64
	for _, k := range l.kept[:n] {
		bytes += k.cost()
	}
	clear(l.kept[:n])
	if l.kept = l.kept[n:]; len(l.kept) == 0 {
		l.kept = nil
	}
	l.acked = ack
	l.room.Release(bytes)
	return nil
}

// receive takes one message of the connection c.
func (l *Link) receive(c *conn, m message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != c || l.ctx.Err() != nil {
		return nil // of a connection that was replaced: all that counts comes again
	}
	switch m.kind {
	case kindBye:
		return nil // the reader ends the link
	case kindWindow:
		if int(m.channel) >= len(l.channels) {
			return wrong(m.kind, "channel %d is unknown; there are 0 to %d", m.channel, len(l.channels)-1)
		}
		return l.channels[m.channel].widen(m.taken)
	}
	if err := l.acknowledge(m.kind, m.ack); err != nil {
		return err
	}
	switch m.kind {
	case kindData, kindEnd:
		return l.arrive(c, m)
	case kindHeartbeat:
		now := l.now()
		l.peer, l.reading = time.Now(), m.reading
		switch {
		case m.echo > now:
			return wrong(m.kind, "it echoes a reading of %d ns; the clock is at %d ns", m.echo, now)
		case m.echo != 0: // two clocks do not run alike: what was held may be more than what has passed
			l.roundTrip = time.Duration(now - m.echo - min(m.held, now-m.echo))
			l.confirmed = max(l.confirmed, m.echo)
		}
	}
	return nil
}

// arrive takes a numbered message. l.mu is held.
func (l *Link) arrive(c *conn, m message) error {
	switch {
	case m.number > l.received+1:
		return wrong(m.kind, "its number is %d; %d must be next", m.number, l.received+1)
	case m.number <= l.received:
		l.duplicates++
		l.owed = true // the other end does not know
		c.wake()
		return nil
	case int(m.channel) >= len(l.channels):
		return wrong(m.kind, "channel %d of number %d is unknown; there are 0 to %d", m.channel, m.number, len(l.channels)-1)
	}
	k := kept{kind: m.kind, channel: m.channel, payload: append([]byte(nil), m.payload...)}
	if err := l.channels[m.channel].put(k); err != nil {
		return err
	}
	l.received = m.number
	l.unacked += k.cost()
	if !l.owed && l.unacked >= Window/4 {
		l.owed = true
		c.wake()
	} else if l.received == l.told+1 {
		c.wake() // the writer sets the time of the ack
	}
	return nil
}
