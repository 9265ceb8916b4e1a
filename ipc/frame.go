package ipc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// MaxFrame is the longest frame either side may send, in bytes, the newline not counted.
const MaxFrame = 1 << 20

// headSize is how much of a bad line is kept for the log.
const headSize = 200

// A Decoder cuts a stream into frames: one JSON object a line. Its memory is bounded by the longest frame allowed,
// whatever the stream holds. It is not safe for concurrent use.
type Decoder struct {
	r   *bufio.Reader
	max int
	buf []byte // the line being read; at most max bytes and its line end
	err error  // what ended the stream; returned from then on
}

// NewDecoder reads frames of at most max bytes from r; max ≤ 0 means MaxFrame.
func NewDecoder(r io.Reader, max int) *Decoder {
	if max <= 0 {
		max = MaxFrame
	}
	return &Decoder{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// Next returns the next frame without its line end. The bytes are valid until the next call.
//
// Two errors concern one line, and reading may go on after them: *OversizeError and *GarbageError. All others end the
// stream and are returned again by each later call: io.EOF when it ended after a newline, *TornError when it ended inside
// a line, else the reader's error. Blank lines are skipped.
func (d *Decoder) Next() ([]byte, error) {
	for d.err == nil {
		line, err := d.line()
		if err != nil {
			return nil, err
		}
		if len(bytes.Trim(line, " \t\r")) == 0 {
			continue
		}
		if err := checkObject(line); err != nil {
			return nil, err
		}
		return line, nil
	}
	return nil, d.err
}

// line reads to the next newline, keeps no more than may be a frame, and counts the rest.
func (d *Decoder) line() ([]byte, error) {
	d.buf = d.buf[:0]
	size := 0
	for {
		part, err := d.r.ReadSlice('\n')
		size += len(part)
		if room := d.max + len("\r\n") - len(d.buf); len(part) > room {
			part = part[:room]
		}
		d.buf = append(d.buf, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && size == 0:
			d.err = io.EOF
			return nil, d.err
		case errors.Is(err, io.EOF):
			d.err = &TornError{Size: size, Head: head(d.buf)}
			return nil, d.err
		case err != nil:
			d.err = fmt.Errorf("read frame: %w", err)
			return nil, d.err
		case size > d.max+len("\r\n"):
			return nil, &OversizeError{Size: size - 1, Max: d.max}
		default:
			line := bytes.TrimSuffix(bytes.TrimSuffix(d.buf, []byte("\n")), []byte("\r"))
			if len(line) > d.max {
				return nil, &OversizeError{Size: size - 1, Max: d.max}
			}
			return line, nil
		}
	}
}

// checkObject tells a frame from garbage.
func checkObject(line []byte) error {
	switch {
	case !utf8.Valid(line):
		return &GarbageError{Size: len(line), Head: head(line), Why: "not UTF-8"}
	case !json.Valid(line):
		return &GarbageError{Size: len(line), Head: head(line), Why: "not JSON"}
	case bytes.TrimLeft(line, " \t\r")[0] != '{':
		return &GarbageError{Size: len(line), Head: head(line), Why: "JSON, but not an object", JSON: true}
	}
	return nil
}

// head copies the first bytes of a bad line: the buffer that they stand in is used again.
func head(line []byte) []byte {
	return bytes.Clone(line[:min(len(line), headSize)])
}

// OversizeError says that one line was longer than a frame may be. It was skipped; the next one can be read.
type OversizeError struct {
	Size int // bytes before the newline, a '\r' included
	Max  int
}

func (e *OversizeError) Error() string {
	return fmt.Sprintf("frame of %d bytes is over the limit of %d bytes", e.Size, e.Max)
}

// GarbageError says that one line was no frame. It was skipped; the next one can be read.
type GarbageError struct {
	Size int    // bytes of the line
	Head []byte // the first 200 of them
	Why  string
	JSON bool // valid JSON, but no object: a batch, a number
}

func (e *GarbageError) Error() string {
	return fmt.Sprintf("line of %d bytes is %s: %q", e.Size, e.Why, e.Head)
}

// TornError says that the stream ended inside a line: its writer died while it wrote. It wraps io.ErrUnexpectedEOF.
type TornError struct {
	Size int    // bytes after the last newline
	Head []byte // the first 200 of them
}

func (e *TornError) Error() string {
	return fmt.Sprintf("stream ended inside a line, after %d bytes: %q", e.Size, e.Head)
}

func (e *TornError) Unwrap() error { return io.ErrUnexpectedEOF }

// An Encoder writes frames, each with its newline in one Write, alone or with others, so that a reader sees whole frames
// if the pipe is not full. It is not safe for concurrent use.
type Encoder struct {
	w   io.Writer
	max int
	buf []byte
}

// NewEncoder writes frames of at most max bytes to w; max ≤ 0 means MaxFrame.
func NewEncoder(w io.Writer, max int) *Encoder {
	if max <= 0 {
		max = MaxFrame
	}
	return &Encoder{w: w, max: max}
}

// Encode writes one frame. It refuses what the other side would refuse before it writes a byte: with *OversizeError for
// its size, with another error for a line end in it (JSON text never needs one) or for bytes that are not UTF-8.
func (e *Encoder) Encode(frame []byte) error {
	if err := e.add(frame); err != nil {
		return err
	}
	return e.flush()
}

// add is Encode for a frame that flush writes together with others.
func (e *Encoder) add(frame []byte) error {
	if err := checkFrame(frame, e.max); err != nil {
		return err
	}
	e.buf = append(append(e.buf, frame...), '\n')
	return nil
}

func (e *Encoder) flush() error {
	n := len(e.buf)
	_, err := e.w.Write(e.buf)
	if e.buf = e.buf[:0]; cap(e.buf) > 2*batchSize {
		e.buf = nil // a single large one shall not be paid for for ever
	}
	if err != nil {
		return fmt.Errorf("write frames of %d bytes: %w", n, err)
	}
	return nil
}

// batchSize is after how many bytes of frames a write begins: half of a pipe's buffer on Linux (64 KiB, pipe(7)), so that
// one write is usually taken at once.
const batchSize = 32 << 10

func checkFrame(frame []byte, max int) error {
	switch {
	case len(frame) > max:
		return &OversizeError{Size: len(frame), Max: max}
	case len(frame) == 0:
		return errors.New("frame is empty")
	case bytes.ContainsAny(frame, "\r\n"):
		return fmt.Errorf("frame of %d bytes holds a line end", len(frame))
	case !utf8.Valid(frame):
		return fmt.Errorf("frame of %d bytes is not UTF-8", len(frame))
	}
	return nil
}
