package logging

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// streamLines is how many lines wait for a stream at most: those of some
	// seconds at the busiest.
	streamLines = 4096
	// flushTime is how long close waits for a stream that does not read.
	flushTime = time.Second
)

// stream passes lines on to a writer that may block, without ever blocking
// whoever writes: a terminal on which ^S was typed must not stop the scheduler.
type stream struct {
	now   func() time.Time
	mu    sync.Mutex // guards closed, lost and sending to lines
	lines chan []byte
	lost  int // lines since the last one that found room

	closed bool
	done   chan struct{}
}

func newStream(w io.Writer, now func() time.Time) *stream {
	s := &stream{now: now, lines: make(chan []byte, streamLines), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for line := range s.lines {
			w.Write(line) //nolint:errcheck // whom could it be told? The file has the line
		}
	}()
	return s
}

// Write takes a line, which it never refuses.
func (s *stream) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(line), nil
	}
	if s.lost > 0 && len(s.lines) < cap(s.lines)-1 {
		s.lines <- s.notice()
		s.lost = 0
	}
	select {
	case s.lines <- bytes.Clone(line):
	default:
		s.lost++
	}
	return len(line), nil
}

// notice is the line that says how many others are missing.
func (s *stream) notice() []byte {
	var b bytes.Buffer
	log := zerolog.New(&b)
	log.Warn().Str("component", string(Daemon)).Time(zerolog.TimestampFieldName, s.now()).Int("lines", s.lost).
		Msg(fmt.Sprintf("%d lines are missing here: they were not read in time; the state directory's scheduler.log has them", s.lost))
	return b.Bytes()
}

func (s *stream) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		if s.lost > 0 && len(s.lines) < cap(s.lines) {
			s.lines <- s.notice()
		}
		close(s.lines)
	}
	s.mu.Unlock()
	select {
	case <-s.done:
	case <-time.After(flushTime):
	}
}
