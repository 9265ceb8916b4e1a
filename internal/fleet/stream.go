package fleet

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
)

// stream is the body of an answer of Server-Sent Events. It ends when the leader
// changes, and in order whatever ends it: its client comes back and goes on after the
// last event that it has heard.
type stream struct {
	body  io.ReadCloser
	lines *bufio.Reader
	wait  func(revision int64) // until what follows may be told
	begin bool                 // of a line
	rest  []byte               // of what was read
	close func() error
}

func newStream(body io.ReadCloser, changed <-chan struct{}, wait func(int64)) *stream {
	over := make(chan struct{})
	s := &stream{body: body, lines: bufio.NewReaderSize(body, 32<<10), wait: wait, begin: true, close: sync.OnceValue(func() error {
		close(over)
		return body.Close()
	})}
	go func() {
		select {
		case <-changed:
			body.Close() // which ends Read
		case <-over:
		}
	}()
	return s
}

// Close implements io.Closer.
func (s *stream) Close() error { return s.close() }

// Read returns whole lines, or as much of one as there is room for, without the marks of
// Peers. It waits until this scheduler's copy knows what they tell of.
func (s *stream) Read(p []byte) (n int, err error) {
	for len(s.rest) == 0 {
		line, err := s.lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, io.EOF // a line that was cut off is no event
		}
		if s.begin && s.mark(line) {
			continue
		}
		s.rest, s.begin = line, err == nil
	}
	for {
		copied := copy(p[n:], s.rest)
		n, s.rest = n+copied, s.rest[copied:]
		if len(s.rest) > 0 || n == len(p) {
			return n, nil
		}
		// What is there already goes along.
		there, _ := s.lines.Peek(s.lines.Buffered())
		end := bytes.IndexByte(there, '\n') + 1
		if end == 0 || s.begin && bytes.HasPrefix(there, []byte(revisionMark)) {
			return n, nil
		}
		s.rest, s.begin = there[:end], true
		s.lines.Discard(end) //nolint:errcheck // it is there
	}
}

// mark waits for the revision that a line tells; false: it is of the stream itself.
func (s *stream) mark(line []byte) bool {
	text, ok := strings.CutPrefix(string(line), revisionMark)
	if !ok {
		return false
	}
	if revision, err := strconv.ParseInt(strings.TrimSuffix(text, "\n"), 10, 64); err == nil {
		s.wait(revision)
	}
	return true
}
