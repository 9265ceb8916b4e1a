package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// Lines is a channel as two streams of lines, as package ipc and the standard input and output of an agentcore have them: a
// frame is a line without its end. The reader ends with io.EOF when the other side has ended its stream, which the next
// reader goes on behind. Closing the writer ends no stream: that is for Channel.End. Closing either ends the call that is
// under way on it; a line that was not complete is dropped then.
func (c *Channel) Lines() (io.ReadCloser, io.WriteCloser) {
	r, w := &lineReader{channel: c}, &lineWriter{channel: c}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	return r, w
}

type lineReader struct {
	channel *Channel
	ctx     context.Context
	cancel  context.CancelCauseFunc
	line    []byte // what is left of it, its line end included
	err     error
}

func (r *lineReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.line) == 0 && r.err == nil {
		frame, err := r.channel.Recv(r.ctx)
		var end *EndError
		switch {
		case errors.As(err, &end):
			r.err = io.EOF
		case err != nil:
			r.err = err
		case bytes.ContainsAny(frame, "\r\n"):
			r.err = wrong(kindData, "a frame of %d bytes of channel %d has a line end in it", len(frame), r.channel.number)
		default:
			r.line = append(frame, '\n')
		}
	}
	if len(r.line) == 0 {
		return 0, r.err
	}
	n := copy(p, r.line)
	r.line = r.line[n:]
	return n, nil
}

func (r *lineReader) Close() error {
	r.cancel(io.ErrClosedPipe)
	return nil
}

type lineWriter struct {
	channel *Channel
	ctx     context.Context
	cancel  context.CancelCauseFunc
	part    []byte // of a line whose end was not written yet
}

// Write sends the lines whose ends are in p. Empty lines are skipped, as package ipc does.
func (w *lineWriter) Write(p []byte) (n int, err error) {
	for {
		line, _, whole := bytes.Cut(p[n:], []byte("\n"))
		if len(w.part)+len(line) > MaxFrame+len("\r") {
			return n, fmt.Errorf("send on channel %d: a line has more than %d bytes", w.channel.number, MaxFrame)
		}
		if !whole {
			w.part = append(w.part, line...)
			return len(p), context.Cause(w.ctx)
		}
		n += len(line) + 1
		if len(w.part) > 0 {
			line = append(w.part, line...)
			w.part = nil
		}
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
			continue
		}
		if err := w.channel.Send(w.ctx, line); err != nil {
			return n, err
		}
	}
}

func (w *lineWriter) Close() error {
	w.cancel(io.ErrClosedPipe)
	return nil
}
