package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// SpoolReader delivers the records of a spool in order. It is not safe for concurrent use, and has to be closed.
type SpoolReader struct {
	s     *Spool
	next  uint64
	file  *os.File // the segment that next lies in; nil before
	first uint64   // its name
	at    int64
}

// Since makes a reader that begins behind the record with that number, or behind those that were acknowledged if they are more.
func (s *Spool) Since(number uint64) *SpoolReader { return &SpoolReader{s: s, next: number + 1} }

// Next waits for the next record. Records that were acknowledged meanwhile are passed over. The error is the cause of ctx,
// ErrSpoolClosed, or a *DamageError.
func (r *SpoolReader) Next(ctx context.Context) (Record, error) {
	if err := r.wait(ctx); err != nil {
		return Record{}, fmt.Errorf("read spool: %w", err)
	}
	for {
		rec, err := r.read()
		if err != nil {
			return Record{}, fmt.Errorf("read spool: %w", err)
		}
		if rec.Number == r.next {
			r.next++
			return rec, nil
		}
	}
}

// wait waits until there is a record, and opens its segment.
func (r *SpoolReader) wait(ctx context.Context) error {
	for {
		there, changed, err := r.open()
		if there || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *SpoolReader) open() (there bool, changed <-chan struct{}, _ error) {
	s := r.s
	s.mu.Lock() // so that the segment is not removed before it is open
	defer s.mu.Unlock()
	if s.closed {
		return false, nil, ErrSpoolClosed
	}
	r.next = max(r.next, s.acked+1)
	if r.next > s.last {
		return false, s.changed, nil
	}
	i := len(s.segments) - 1
	for s.segments[i].first > r.next {
		i--
	}
	first := s.segments[i].first
	if r.file != nil && r.first == first {
		return true, nil, nil
	}
	f, err := os.Open(s.path(first))
	if err != nil {
		return false, nil, err
	}
	r.Close()
	r.file, r.first, r.at = f, first, 0
	return true, nil, nil
}

// read reads the record at r.at.
func (r *SpoolReader) read() (Record, error) {
	b := make([]byte, recordHead)
	if _, err := r.file.ReadAt(b, r.at); err != nil {
		return Record{}, r.damage(err)
	}
	if h := parseHead(b); h.length <= r.s.cfg.MaxRecord {
		b = append(b, make([]byte, h.length)...)
		if _, err := r.file.ReadAt(b, r.at); err != nil {
			return Record{}, r.damage(err)
		}
	}
	rec, _, err := parseRecord(b, r.s.cfg.MaxRecord)
	if err == nil && rec.Number > r.next {
		err = fmt.Errorf("the record has number %d; %d is missing", rec.Number, r.next)
	}
	if err != nil {
		return Record{}, &DamageError{File: r.file.Name(), Offset: r.at, Why: err.Error()}
	}
	r.at += int64(len(b))
	return rec, nil
}

// damage is an error of a read; the end of a file where a record should be is damage.
func (r *SpoolReader) damage(err error) error {
	if errors.Is(err, io.EOF) {
		return &DamageError{File: r.file.Name(), Offset: r.at, Why: fmt.Sprintf("the file ends; record %d should be there", r.next)}
	}
	return err
}

// Close closes the reader's file.
func (r *SpoolReader) Close() {
	if r.file != nil {
		r.file.Close() //nolint:errcheck // it was only read
		r.file = nil
	}
}
