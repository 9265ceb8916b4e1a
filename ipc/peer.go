package ipc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Handler is what a Peer does for the other side. Both methods are called from several goroutines; params are nil when the
// frame had none.
type Handler interface {
	// HandleCall answers a request. Each runs in a goroutine of its own, up to Config.MaxRunning at once. An *Error is
	// sent as it is, any other error, and a panic, as CodeInternal. The result must encode to JSON; see Unhurried.
	HandleCall(ctx context.Context, method string, params json.RawMessage) (result any, err error)
	// HandleNotify takes a notification. They come one after the other, in the order in which they were sent. It may call
	// the other side and may be slow: see inbox for what that costs.
	HandleNotify(ctx context.Context, method string, params json.RawMessage)
}

// Unhurried is a result whose caller has no use for it at once: it may wait a few milliseconds for other frames to go out
// with.
type Unhurried struct{ Result any }

// Config is how a Peer behaves. Each zero value stands for the default.
type Config struct {
	Name    string // who is at the other end, for errors and the log
	Log     zerolog.Logger
	Handler Handler // nil: every request is answered with CodeMethodNotFound, notifications are ignored

	SendQueue    int           // frames that may wait to be written; 256
	ReceiveQueue int           // bytes that may wait for a handler before reading pauses; 4 MiB (the hard bound is 16 times that)
	MaxRunning   int           // requests served at once; 32
	HangLimit    time.Duration // without progress for so long, the other side is hung; 10 s

	GarbageLimit  int           // so many lines that are not JSON …; 10
	GarbageWindow time.Duration // … within this time are too many; 10 s

	Now func() time.Time // dates the garbage; time.Now
}

// Peer is one end of a JSON-RPC 2.0 conversation; both ends are alike. Make it with NewPeer, start it with Run. All other
// methods may be called from anywhere, before, during and after Run.
type Peer struct {
	cfg Config
	log zerolog.Logger
	r   io.ReadCloser
	w   io.WriteCloser
	dec *Decoder // the reading goroutine's
	enc *Encoder // the writing goroutine's
	bad garbageWindow

	out   *outbox
	in    *inbox
	calls *calls

	started   atomic.Bool
	expectEOF atomic.Bool
	stopped   latch         // by Stop
	hung      latch         // by whoever waited for the other side for too long
	readDone  chan struct{} // closed when nothing more will be read
	handlers  sync.WaitGroup

	garbage, oversized, unknownAnswers atomic.Uint64
}

// NewPeer makes a peer that reads from r and writes to w. Run owns both and closes them at its end; closing r must end a
// Read that is under way, and closing w a Write, or Run cannot return. (A pipe of os.Pipe or exec.Cmd does that. os.Stdin
// does not: duplicate descriptor 0, set it non-blocking and hand it to os.NewFile.)
func NewPeer(r io.ReadCloser, w io.WriteCloser, cfg Config) *Peer {
	cfg.SendQueue = orDefault(cfg.SendQueue, 256)
	cfg.ReceiveQueue = orDefault(cfg.ReceiveQueue, 4<<20)
	cfg.MaxRunning = orDefault(cfg.MaxRunning, 32)
	cfg.HangLimit = orDefault(cfg.HangLimit, 10*time.Second)
	cfg.GarbageLimit = orDefault(cfg.GarbageLimit, 10)
	cfg.GarbageWindow = orDefault(cfg.GarbageWindow, 10*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	out := newOutbox(cfg.SendQueue)
	out.linger = linger
	return &Peer{
		cfg: cfg, log: cfg.Log.With().Str("peer", cfg.Name).Logger(),
		r: r, w: w, dec: NewDecoder(r, MaxFrame), enc: NewEncoder(w, MaxFrame),
		bad:   garbageWindow{limit: cfg.GarbageLimit, span: cfg.GarbageWindow},
		out:   out,
		in:    newInbox(cfg.ReceiveQueue, cfg.MaxRunning, cfg.HangLimit),
		calls: newCalls(),

		stopped: newLatch(), hung: newLatch(), readDone: make(chan struct{}),
	}
}

// linger is how long what is patient may wait for company. Nobody sees the difference, and a short run's progress goes out
// together with its end.
const linger = 2 * time.Millisecond

func orDefault[T int | time.Duration](v, byDefault T) T {
	if v <= 0 {
		return byDefault
	}
	return v
}

// Call asks the other side and waits for its answer, which is decoded into result unless that is nil. The error wraps the
// *Error that the other side answered with, the cause of ctx, or what ended the peer. A call whose ctx ended may still be
// carried out. An answer over the frame limit cannot be told apart from other oversized frames: the call then waits for
// its ctx, so give it a deadline.
func (p *Peer) Call(ctx context.Context, method string, params, result any) error {
	text, err := p.call(ctx, method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		return fmt.Errorf("call %s of %s: %w", method, p.cfg.Name, err)
	}
	return nil
}

func (p *Peer) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	defer p.in.await()()
	id, answered, err := p.calls.add()
	if err != nil {
		return nil, err
	}
	defer p.calls.remove(id)
	frame, err := encodeRequest(strconv.FormatInt(id, 10), method, params)
	if err != nil {
		return nil, err
	}
	if err := p.send(ctx, outFrame{bytes: frame}); err != nil {
		return nil, err
	}
	select {
	case a := <-answered:
		return a.result, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Notify sends a notification that is never dropped. It waits for room in the send queue; no room within the hang limit
// ends the peer, and is ErrHung. Nil means queued, not received.
func (p *Peer) Notify(ctx context.Context, method string, params any) error {
	return p.notify(ctx, method, outFrame{}, params)
}

// NotifyPatient is Notify for what may wait a few milliseconds for other frames to go out with.
func (p *Peer) NotifyPatient(ctx context.Context, method string, params any) error {
	return p.notify(ctx, method, outFrame{patient: true}, params)
}

// NotifyDroppable sends progress of a stream (a run's id, never empty). It does not wait: when the send queue is full, the
// oldest droppable notification gives way, and the next one of the same stream that goes out says in its params how many
// before it were dropped: `"dropped": n`. So the params must be an object without such a member. If a stream has a last
// word, send it with NotifyFinal.
func (p *Peer) NotifyDroppable(method, stream string, params any) error {
	return p.notify(context.Background(), method, outFrame{stream: stream, droppable: true}, params)
}

// NotifyFinal is Notify for the last notification of a stream: it too says what was dropped before it, so that over a
// whole stream received and dropped add up to sent. The params must be an object without a member "dropped".
func (p *Peer) NotifyFinal(ctx context.Context, method, stream string, params any) error {
	return p.notify(ctx, method, outFrame{stream: stream}, params)
}

func (p *Peer) notify(ctx context.Context, method string, f outFrame, params any) error {
	frame, err := encodeRequest("", method, params)
	if err == nil && f.stream != "" {
		err = checkDroppable(frame)
	}
	if err == nil && f.droppable && f.stream == "" {
		err = errors.New("a droppable notification needs a stream")
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		f.bytes = frame
		defer p.in.await()()
		err = p.send(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("notify %s of %s: %w", p.cfg.Name, method, err)
	}
	return nil
}

// send queues a frame that Encode will not refuse. The caller has told the inbox that it waits.
func (p *Peer) send(ctx context.Context, f outFrame) error {
	limit := MaxFrame
	if f.stream != "" {
		limit -= droppedRoom
	}
	if err := checkFrame(f.bytes, limit); err != nil {
		return err
	}
	err := p.out.put(ctx, f, p.cfg.HangLimit)
	if errors.Is(err, ErrHung) {
		p.hung.set(fmt.Errorf("%w: no room in the send queue for %v", ErrHung, p.cfg.HangLimit))
	}
	return err
}

// SetPatient says whether the other side may take as long as it likes to read what we send, from now on. A peer is not
// patient at first: it is ErrHung that nothing is read for the hang limit.
func (p *Peer) SetPatient(patient bool) { p.out.patient.Store(patient) }

// ExpectEOF says that the end of the other side's stream is agreed on from now on: a shutdown was asked for and accepted.
func (p *Peer) ExpectEOF() { p.expectEOF.Store(true) }

// CloseSend waits until the requests that were taken in are answered, for no longer than the hang limit; then it writes what
// is queued and closes w, so that the other side sees the end of our stream at a frame's end. What is sent later fails with
// ErrClosed. Reading goes on until the other side closes as well. A handler must not call it: its own answer is waited for.
func (p *Peer) CloseSend() {
	p.in.awaitAnswered()
	p.out.close(ErrClosed)
}

// ReadDone is closed when nothing more will be read, which can be some time before Run returns: what was received is
// handled first. A core begins to stop its workers here.
func (p *Peer) ReadDone() <-chan struct{} { return p.readDone }

// Stop ends Run at once with this cause (ErrStopped if nil), dropping what is queued either way; it does not wait. It may
// be called before Run, after it, and again: the first cause counts. It is the interrupt that an oklog/run group wants.
func (p *Peer) Stop(cause error) {
	if cause == nil {
		cause = ErrStopped
	}
	p.stopped.set(cause)
}

// Stats counts since the peer was made: lines that were not JSON, lines over the frame limit, answers that no call
// waited for, and droppable notifications that were dropped.
func (p *Peer) Stats() (garbage, oversized, unknownAnswers, dropped uint64) {
	return p.garbage.Load(), p.oversized.Load(), p.unknownAnswers.Load(), p.out.droppedCount()
}

// latch keeps the first error that it is given and tells everybody.
type latch struct {
	once *sync.Once
	done chan struct{} // closed after err was set
	err  *error
}

func newLatch() latch { return latch{once: new(sync.Once), done: make(chan struct{}), err: new(error)} }

func (l latch) set(err error) {
	l.once.Do(func() { *l.err = err; close(l.done) })
}
