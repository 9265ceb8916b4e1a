package redact

import (
	"bytes"
	"io"
	"sync"
)

// maxHeld bounds the part of an unfinished line that a Writer holds, in bytes.
const maxHeld = 1 << 20

// Writer redacts a stream. What is written goes on by whole lines, at once and
// in one write: a line that has not ended is held, since a secret may go on in the
// next write, until it ends, is longer than 1 MiB, or Flush or Close is called.
// There is no timer: who follows the stream waits for the end of a line. It may
// be used by several goroutines.
type Writer struct {
	r    *Redactor
	to   io.Writer
	mu   sync.Mutex // guards what follows, and the order of writes
	held []byte
	line func([]byte) []byte
	out  []byte
}

// Writer returns a Writer to w, which it does not close.
func (r *Redactor) Writer(w io.Writer) *Writer {
	return &Writer{r: r, to: w, line: r.Lines()}
}

// Write takes all of p, or returns the error of the writer below; what that did
// not take is lost.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ends := bytes.LastIndexByte(p, '\n') + 1
	if ends > 0 {
		lines := append(w.held, p[:ends]...)
		w.held = lines[:0]
		if err := w.send(lines); err != nil {
			return 0, err
		}
	}
	w.held = append(w.held, p[ends:]...)
	for len(w.held) > maxHeld {
		cut := w.r.cut(w.held)
		err := w.send(w.held[:cut])
		w.held = append(w.held[:0], w.held[cut:]...)
		if err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush writes what is held of a line that has not ended. A secret of which only
// a part was written is not found.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.held
	w.held = w.held[:0]
	return w.send(held)
}

// Close writes what is held.
func (w *Writer) Close() error { return w.Flush() }

// send redacts lines, of which the last may have no end, and writes them.
func (w *Writer) send(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	w.out = w.out[:0]
	for line := range bytes.Lines(text) {
		body := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		w.out = append(append(w.out, w.line(body)...), line[len(body):]...)
	}
	_, err := w.to.Write(w.out)
	return err
}

// cut returns where an overlong line can be cut without cutting a secret: where
// both parts alone become what they become together. A secret of more than 32
// KiB without such a place is cut.
func (r *Redactor) cut(text []byte) int {
	const step = 1 << 10
	whole := r.Bytes(text)
	at := len(text) - 32*step
	for range 32 {
		head, tail := r.Bytes(text[:at]), r.Bytes(text[at:])
		if len(head)+len(tail) == len(whole) && bytes.HasPrefix(whole, head) && bytes.HasSuffix(whole, tail) {
			return at
		}
		at -= step + 7 // so that a repeated pattern does not meet every try
	}
	return len(text) - 32*step
}
