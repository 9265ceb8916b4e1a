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

// Handler serves what the other side sends. Both methods are called from several goroutines. params are nil when the
// frame had none. ctx ends when the peer does, with the cause of that.
type Handler interface {
	// HandleCall answers a request. Each runs in a goroutine of its own, up to Config.MaxRunning at once; further ones
	// wait. An *Error is sent as it is, any other error, and a panic, as CodeInternal. The result must encode to a JSON
	// frame of at most MaxFrame, else the caller gets CodeInternal instead. See Unhurried.
	HandleCall(ctx context.Context, method string, params json.RawMessage) (result any, err error)
	// HandleNotify takes a notification. Notifications are handled one after the other, in the order in which they were
	// sent, and not in order with requests. It may call the other side. While it is slow, the others wait: see inbox.
	HandleNotify(ctx context.Context, method string, params json.RawMessage)
}

// Unhurried wraps the result of a request whose caller does not need it at once: the answer may wait up to 2 ms, so that
// it is written together with other frames.
type Unhurried struct{ Result any }

// Config is how a Peer behaves. Each zero value stands for the default, which stands after the semicolon. The defaults
// are those of docs/protocol.md.
type Config struct {
	Name    string // who is at the other end, for errors and the log
	Log     zerolog.Logger
	Handler Handler // nil: every request is answered with CodeMethodNotFound, notifications are ignored

	SendQueue    int           // frames that may wait to be written; 256
	ReceiveQueue int           // bytes that may wait for a handler before reading pauses; 4 MiB (the hard bound is 16 times that)
	MaxRunning   int           // requests served at once; 32
	HangLimit    time.Duration // how long one frame may take to be written or queued before the other side counts as hung; 10 s

	// GarbageLimit lines that are not JSON within GarbageWindow end the conversation: another program prints on the stream.
	GarbageLimit  int           // lines; 10
	GarbageWindow time.Duration // a span; 10 s

	// BeforeClose, if it is set, hears why the conversation ends when the other side is the reason. What was received has
	// been handled, and neither stream is closed before it returns.
	BeforeClose func(cause error)

	Now func() time.Time // the time of a garbage line; time.Now
}

// Peer is one end of a JSON-RPC 2.0 conversation; both ends are alike. Make it with NewPeer, start it with Run. All other
// methods may be called from any goroutine, before, during and after Run: before it, what is sent waits in the queue;
// after it, sending and calling fail with the cause that Run returned.
//
// One goroutine reads, one writes, one handles notifications, and up to Config.MaxRunning serve requests. None of them
// holds a lock while it waits for the other side:
//
//	Call, Notify → outbox → writeLoop → w        r → readLoop → calls   (answers)
//	                  ↑                                       → inbox   → HandleNotify, HandleCall
//	                  └─────────────────────────────────────────────────── answers
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
	stopped   latch         // set by Stop
	hung      latch         // set when a send or a write took longer than the hang limit
	readDone  chan struct{} // closed when nothing more will be read
	handlers  sync.WaitGroup

	garbage, oversized, unknownAnswers atomic.Uint64
}

// NewPeer makes a peer that reads from r and writes to w. Run owns both and closes them at its end. Closing r must end a
// Read that is under way, and closing w a Write, or Run cannot return. A pipe of os.Pipe or exec.Cmd does that. os.Stdin
// does not: duplicate descriptor 0, set it non-blocking and hand it to os.NewFile.
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

// linger is how long a patient frame may wait for others to be written with it. It is below what a person notices, and
// long enough that the events of a short run are written together with its end: one wake-up of the reader instead of many.
const linger = 2 * time.Millisecond

func orDefault[T int | time.Duration](v, byDefault T) T {
	if v <= 0 {
		return byDefault
	}
	return v
}

// Call asks the other side and waits for its answer, which is decoded into result unless that is nil. The error wraps the
// *Error that the other side answered with, the cause of ctx, or what ended the peer. After any error but an *Error the
// request may have been carried out. It is never sent twice. An answer over the frame limit cannot be told apart from
// other oversized frames: the call then waits for its ctx, so give it a deadline.
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

// Notify sends a notification that is never dropped. It waits for room in the send queue. If there is none within the hang
// limit, it returns ErrHung and the peer ends. Nil means that the notification is queued, not that it was received.
func (p *Peer) Notify(ctx context.Context, method string, params any) error {
	return p.notify(ctx, method, outFrame{}, params)
}

// NotifyPatient is Notify for a notification that may wait up to 2 ms to be written together with other frames.
func (p *Peer) NotifyPatient(ctx context.Context, method string, params any) error {
	return p.notify(ctx, method, outFrame{patient: true}, params)
}

// NotifyDroppable sends progress of a stream, named by a run's id, for example, and never empty. It does not wait: when the
// send queue is full, the oldest droppable notification is dropped, and the next one of its stream that is written says in
// its params how many before it were dropped: `"dropped": n`. So the params must be an object without such a member. For
// each stream that ends with NotifyFinal:
//
//	notifications received + sum of "dropped" = notifications sent
func (p *Peer) NotifyDroppable(method, stream string, params any) error {
	return p.notify(context.Background(), method, outFrame{stream: stream, droppable: true}, params)
}

// NotifyFinal is Notify for the last notification of a stream: it is never dropped, and says what was dropped before it.
// The params must be an object without a member "dropped".
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

// send queues a frame that Encode will not refuse. The caller has called inbox.await.
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

// SetPatient says whether the other side may take any time to read what we send, from now on. A peer is not patient at
// first: if nothing is read for the hang limit, it ends with ErrHung.
func (p *Peer) SetPatient(patient bool) { p.out.patient.Store(patient) }

// ExpectEOF says that the end of the other side's stream is agreed on from now on, since a shutdown was requested. Run then
// returns ErrClosed instead of ErrEOF.
func (p *Peer) ExpectEOF() { p.expectEOF.Store(true) }

// CloseSend waits until all requests that were read are answered, for no longer than the hang limit. Then it writes what
// is queued and closes w, so that the other side sees the end of our stream at a frame's end. What is sent later fails with
// ErrClosed. Reading goes on until the other side closes as well. A handler must not call it: it would wait for its own
// answer.
func (p *Peer) CloseSend() {
	p.in.awaitAnswered()
	p.out.close(ErrClosed)
}

// ReadDone is closed when nothing more will be read. Run returns later, after what was received is handled. A core
// begins to stop its workers here: its scheduler is gone.
func (p *Peer) ReadDone() <-chan struct{} { return p.readDone }

// Stop ends Run at once with this cause (ErrStopped if nil) and drops what is queued in both directions. It does not wait.
// It may be called before Run, after it, and again: the first cause counts. It is the interrupt function for oklog/run.
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

// latch keeps the first error that it is given and closes a channel then.
type latch struct {
	once *sync.Once
	done chan struct{} // closed after err was set
	err  *error
}

func newLatch() latch { return latch{once: new(sync.Once), done: make(chan struct{}), err: new(error)} }

func (l latch) set(err error) {
	l.once.Do(func() { *l.err = err; close(l.done) })
}
