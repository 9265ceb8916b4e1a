package wire

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

var (
	// ErrFull says that a spool takes no more: its bound is reached, or the disk is full. What it holds is safe, and room
	// comes with Ack.
	ErrFull = errors.New("spool is full")
	// ErrSpoolClosed says that a spool was closed.
	ErrSpoolClosed = errors.New("spool is closed")
	// ErrSpoolHeld says that another process, or another part of this one, has the spool open.
	ErrSpoolHeld = errors.New("spool is in use")
)

// DamageError says that a spool does not hold what it should, and that no crash explains it. Nothing was changed.
type DamageError struct {
	File   string
	Offset int64
	Why    string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("spool is damaged: %s at byte %d: %s; move its folder away to begin an empty one", e.File, e.Offset, e.Why)
}

// SpoolConfig is how a Spool behaves. A zero value stands for the default, which stands after the semicolon.
type SpoolConfig struct {
	MaxBytes  int64 // of all records, with 25 bytes for each; 256 MiB. At least four of the longest records.
	MaxRecord int   // bytes of a payload; MaxFrame
}

// Spool is a log on disk of what was not acknowledged yet. What Append has returned a number for is there after a crash of
// the process or the host, until it is acknowledged. Its methods may be called from any goroutine.
//
// A folder has segments, files named for the number of their first record. A segment is removed when all of it was
// acknowledged. Only the last one is written to, and it alone can be torn by a crash.
type Spool struct {
	dir     string
	cfg     SpoolConfig
	segment int64 // bytes after which a new one begins
	lock    *os.File
	state   *os.File

	io   sync.Mutex // of who writes to the last segment; taken before mu
	file *os.File   // the last segment

	mu       sync.Mutex // guards what follows
	segments []segment
	pending  *batch
	waiting  int64  // bytes of pending, and of the batch that is being written
	last     uint64 // the last record, which is durable as all before it
	acked    uint64
	tight    bool  // the disk was full: nothing that was acknowledged shall stay
	failed   error // after a failure that leaves unknown what is durable
	closed   bool
	changed  chan struct{} // closed, and replaced, when a record was added or the spool closed
}

// segment is one file; size is what of it is durable.
type segment struct {
	first uint64
	size  int64
}

// batch is what is made durable at once.
type batch struct {
	records []*Record
	bytes   int64
	written bool
	err     error
}

func (s *Spool) path(first uint64) string { return filepath.Join(s.dir, segmentName(first)) }

func segmentName(first uint64) string { return fmt.Sprintf("%020d.log", first) }

// Append adds a record and returns its number once the record is durable. Records that are appended at the same time share
// one fsync. After an error the record is not there: ErrFull and ErrSpoolClosed are wrapped; any other error of a write is
// for good, since what the disk holds is unknown then, and the spool must be opened anew.
func (s *Spool) Append(kind byte, payload []byte) (uint64, error) {
	if len(payload) > s.cfg.MaxRecord {
		return 0, fmt.Errorf("append to spool: the record has %d bytes; it must have at most %d", len(payload), s.cfg.MaxRecord)
	}
	r := &Record{Kind: kind, Payload: payload}
	b, err := s.join(r)
	if err == nil {
		err = s.flush(b)
	}
	if err != nil {
		return 0, fmt.Errorf("append to spool: %w", err)
	}
	return r.Number, nil
}

// join adds a record to the batch that is written next.
func (s *Spool) join(r *Record) (*batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	size := recordSize(len(r.Payload))
	if used := s.used() + s.waiting; used+size > s.cfg.MaxBytes {
		return nil, fmt.Errorf("%w: it has %d bytes of %d", ErrFull, used, s.cfg.MaxBytes)
	}
	if s.pending == nil {
		s.pending = &batch{}
	}
	s.pending.records = append(s.pending.records, r)
	s.pending.bytes += size
	s.waiting += size
	return s.pending, nil
}

func (s *Spool) usable() error {
	if s.closed {
		return ErrSpoolClosed
	}
	return s.failed
}

// used is how many bytes the segments have.
func (s *Spool) used() (n int64) {
	for _, seg := range s.segments {
		n += seg.size
	}
	return n
}

// flush makes a batch durable, unless somebody else has.
func (s *Spool) flush(b *batch) error {
	s.io.Lock()
	defer s.io.Unlock()
	if b.written {
		return b.err
	}
	s.mu.Lock()
	s.pending = nil
	last, err := s.last, s.usable()
	s.mu.Unlock()
	if err == nil {
		err = s.write(b, last)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.written, b.err = true, err
	s.waiting -= b.bytes
	s.tight = errors.Is(err, ErrFull)
	if err == nil {
		s.last = last + uint64(len(b.records))
		s.segments[len(s.segments)-1].size += b.bytes
		s.wakeReaders()
	}
	return err
}

// wakeReaders has all readers look again. mu is held.
func (s *Spool) wakeReaders() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// write writes a batch behind the record last. io is held. What a failed write has left is taken away again.
func (s *Spool) write(b *batch, last uint64) error {
	s.mu.Lock()
	at := s.segments[len(s.segments)-1].size
	s.mu.Unlock()
	if at > 0 && at+b.bytes > s.segment {
		if err := s.rotate(last + 1); err != nil {
			return full(err)
		}
		at = 0
	}
	buf := make([]byte, 0, b.bytes)
	for i, r := range b.records {
		r.Number = last + 1 + uint64(i)
		buf = appendRecord(buf, *r, last)
	}
	if _, err := s.file.WriteAt(buf, at); err != nil {
		if cut := s.file.Truncate(at); cut != nil {
			return s.fail(errors.Join(err, cut))
		}
		return full(err)
	}
	if err := s.file.Sync(); err != nil {
		return s.fail(err) // the kernel may have dropped the pages: a second try says nothing
	}
	return nil
}

// full marks the errors of a disk that has no room.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// fail is the end of all writing.
func (s *Spool) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = fmt.Errorf("an earlier write has failed: %w", err)
	return err
}

// rotate begins a segment. io is held.
func (s *Spool) rotate(first uint64) error {
	f, err := os.OpenFile(s.path(first), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syncDir(s.dir); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	s.file.Close() //nolint:errcheck // all of it is durable
	s.file = f
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segments = append(s.segments, segment{first: first})
	return nil
}

// Last is the number of the last record; 0 before the first.
func (s *Spool) Last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Acked is the number up to which all records were acknowledged.
func (s *Spool) Acked() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// Used is how many bytes the spool has on disk, those that were acknowledged and not removed yet as well.
func (s *Spool) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used()
}

// Ack says that all records up to a number need not be kept. A crash may undo the latest calls: records are delivered again
// then, which their receiver tells by their numbers. A number that was acknowledged before changes nothing.
func (s *Spool) Ack(number uint64) error {
	fresh, err := s.ack(number)
	if err != nil {
		return fmt.Errorf("acknowledge record %d of the spool: %w", number, err)
	}
	// What is left when all was acknowledged, unless somebody writes, whose segment it is.
	if fresh && s.io.TryLock() {
		defer s.io.Unlock()
		s.renew()
	}
	return nil
}

// ack removes segments; fresh says whether the last one should be replaced.
func (s *Spool) ack(number uint64) (fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch err := s.usable(); {
	case err != nil:
		return false, err
	case number > s.last:
		return false, fmt.Errorf("the last record is %d", s.last)
	case number <= s.acked:
		return false, nil
	}
	s.acked = number
	if err := s.saveState(); err != nil {
		return false, err
	}
	err = s.remove()
	return number == s.last && (s.tight || s.segments[0].size >= s.segment/8), err
}

// remove removes the segments that were acknowledged. mu is held.
func (s *Spool) remove() error {
	n := 0
	for n+1 < len(s.segments) && s.segments[n+1].first <= s.acked+1 {
		n++
	}
	if n == 0 {
		return nil
	}
	// Files may vanish in any order in a crash of the host, and the gap is explained by the state alone.
	if err := s.state.Sync(); err != nil {
		return err
	}
	for _, seg := range s.segments[:n] {
		if err := os.Remove(s.path(seg.first)); err != nil {
			return err
		}
		s.segments = slices.Clone(s.segments[1:])
	}
	return nil
}

// renew begins a segment if all of the last one was acknowledged. io is held. A failure is none: it is tried again.
func (s *Spool) renew() {
	s.mu.Lock()
	last, idle := s.last, s.acked == s.last && s.usable() == nil && len(s.segments) == 1 && s.segments[0].size > 0
	s.mu.Unlock()
	if !idle || s.rotate(last+1) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove() //nolint:errcheck // the next one that is acknowledged does it
}

// Close makes the spool another process's to open. Readers and later calls fail with ErrSpoolClosed; appends that are being
// written end as they would.
func (s *Spool) Close() error {
	s.io.Lock()
	defer s.io.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	err := s.saveState()
	s.closed = true
	s.wakeReaders()
	err = errors.Join(err, s.state.Sync(), s.file.Close(), s.state.Close(), s.lock.Close())
	if err != nil {
		return fmt.Errorf("close spool: %w", err)
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
