package worker

import (
	"context"
	"io"
)

// Stream joins a run's program to a stream of events: what it prints about the
// stream goes there and to nobody else, what the stream has for it is written to
// its standard input.
type Stream struct {
	// Attach is told of the program's standard input when it was started. Writing
	// to it does not block; an error that wraps ErrUnread means that the program
	// has too much unread, and p was not queued.
	Attach func(stdin io.Writer)
	// Take takes a line of the program's, which ends in a newline. The program's
	// output is not read meanwhile. The slice is only valid during the call.
	Take func(ctx context.Context, line []byte) error
}

// Streamer is an optional part of a Session, for a program that can be the worker
// of a stream.
type Streamer interface {
	// Streams reports whether a line of the program's standard output is about the
	// stream. Event is not told such a line. It is called by the same goroutine as
	// Event, and only in a run that streams.
	Streams(line []byte) bool
}

// has reports whether a line is about the stream.
func (s *Stream) has(g *guarded, line []byte) (is bool) {
	streamer, ok := g.session.(Streamer)
	if s == nil || !ok {
		return false
	}
	g.call("Streams", func() { is = streamer.Streams(line) })
	return is
}

// pass passes a line on. One that the stream does not take is lost: the stream is
// over, or has its worker start anew, and the line had no effect.
func (s *Stream) pass(ctx context.Context, g *guarded, line []byte) {
	if err := s.Take(ctx, append(line[:len(line):len(line)], '\n')); err != nil {
		g.log.Debug().Err(err).Msg("a line about the stream was not taken")
	}
}
