package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsched/agentsched/internal/redact"
)

// Options are how a log is kept. The zero value is usable.
type Options struct {
	MaxSize int64            // bytes of a file; 0: 64 MiB
	Keep    int              // files, at least 1; the oldest beyond are removed. 0: 30
	Redact  *redact.Redactor // takes secrets out of entries; nil takes out nothing
	Now     func() time.Time // nil: time.Now
	// Sync is how long what Note was told may take to be on disk; 0: 100 ms.
	Sync time.Duration
	// Wait is how long Open waits for another process to let go of the log; 0: 1 s.
	Wait time.Duration
	// Failed is told, from one goroutine, of each error that cost records, with how
	// many; nil: nobody is.
	Failed func(err error, lost int64)

	write func(f *os.File, p []byte, at int64) (int, error) // nil: f.WriteAt; for tests
}

// Defaults of Options.
const (
	DefaultMaxSize = 64 << 20
	DefaultKeep    = 30
	DefaultSync    = 100 * time.Millisecond
	DefaultWait    = time.Second
)

func (o Options) withDefaults() Options {
	if o.MaxSize <= 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.Keep <= 0 {
		o.Keep = DefaultKeep
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sync <= 0 {
		o.Sync = DefaultSync
	}
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.Failed == nil {
		o.Failed = func(error, int64) {}
	}
	if o.write == nil {
		o.write = func(f *os.File, p []byte, at int64) (int, error) { return f.WriteAt(p, at) }
	}
	return o
}

// Log is the audit log of one state directory, which it holds alone until Close.
//
// One goroutine writes. Whoever calls Record waits until a batch with his entry
// is on disk: many share one fsync. Whoever calls Note does not wait at all.
type Log struct {
	o     Options
	queue chan pending
	head  atomic.Pointer[Head] // the last that is on disk

	// missed counts the entries for which the queue had no room, since the last gap.
	missed atomic.Int64

	refused *refusals

	closing sync.RWMutex // held for reading while something is queued
	closed  bool
	done    chan struct{} // closed when the writer has ended
	err     error         // of the writer's end; read after done
}

// pending is an entry on its way to the writer.
type pending struct {
	entry Entry
	done  chan<- error // nil: nobody waits
}

// maxQueue bounds the entries that wait to be written.
const maxQueue = 8192

// ErrClosed is returned by Record after Close.
var ErrClosed = errors.New("the audit log is closed")

// Open takes the log in the folder, which is made if it is not there, and goes on
// behind its last record. What a crash has left of an unfinished line is put into
// a record. The error wraps ErrHeld if another process has the log.
func Open(dir string, o Options) (*Log, error) {
	o = o.withDefaults()
	w, err := openWriter(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open audit log %s: %w", dir, err)
	}
	l := &Log{o: o, queue: make(chan pending, maxQueue), done: make(chan struct{}), refused: newRefusals()}
	w.told = &l.head
	w.told.Store(&Head{w.head.Seq, w.head.Hash})
	go func() {
		defer close(l.done)
		l.err = l.run(w)
	}()
	return l, nil
}

// Once records one request in a log that nobody has open, e.g. from a command while
// no scheduler runs.
func Once(ctx context.Context, dir string, o Options, e Entry) error {
	l, err := Open(dir, o)
	if err != nil {
		return err
	}
	return errors.Join(l.Record(ctx, e), l.Close())
}

// Record returns when the entry is on disk, or why it is not. If ctx ends first,
// it may be written all the same.
func (l *Log) Record(ctx context.Context, e Entry) error {
	done := make(chan error, 1)
	if err := l.enqueue(ctx, pending{l.stamped(e), done}); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("record %s: %w", e.Action, context.Cause(ctx))
	}
}

func (l *Log) enqueue(ctx context.Context, p pending) error {
	l.closing.RLock()
	defer l.closing.RUnlock()
	if l.closed {
		return ErrClosed
	}
	select {
	case l.queue <- p:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("record %s: %w", p.entry.Action, context.Cause(ctx))
	}
}

// Note has the entry recorded and does not wait. If there is no room for it, as
// the disk is too slow or full, it is counted, and a record of the gap follows.
// What Detail points to must not change any more.
func (l *Log) Note(e Entry) {
	l.closing.RLock()
	defer l.closing.RUnlock()
	if l.closed {
		return
	}
	select {
	case l.queue <- pending{entry: l.stamped(e)}:
	default:
		l.missed.Add(1)
	}
}

func (l *Log) stamped(e Entry) Entry {
	if e.Time.IsZero() {
		e.Time = l.o.Now()
	}
	return e
}

// Head returns the last record that is on disk. Kept in another place it is an
// anchor, by which a later cut is found.
func (l *Log) Head() Head { return *l.head.Load() }

// Close writes what is queued and lets go of the log. It may be called twice.
func (l *Log) Close() error {
	l.closing.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.closing.Unlock()
	<-l.done
	return l.err
}

// maxBatch bounds how many entries are written together.
const maxBatch = 512

// run writes until the queue is closed and empty.
func (l *Log) run(w *writer) error {
	timer := time.NewTimer(l.o.Sync)
	timer.Stop()
	defer timer.Stop()
	armed := false
	var batch []pending
	for {
		select {
		case <-timer.C:
			armed = false
			w.sync()
			continue
		case p, ok := <-l.queue:
			if !ok {
				w.lose(l.missed.Swap(0), errFull)
				return w.close()
			}
			clear(batch)
			batch = append(batch[:0], p)
			for more := true; more && len(batch) < maxBatch; {
				select {
				case p, ok := <-l.queue:
					if more = ok; ok {
						batch = append(batch, p)
					}
				default:
					more = false
				}
			}
			w.lose(l.missed.Swap(0), errFull)
			w.writeAll(batch)
		}
		if w.dirty && !armed {
			timer.Reset(l.o.Sync)
			armed = true
		}
	}
}

var errFull = fmt.Errorf("more than %d entries waited to be written", maxQueue)
