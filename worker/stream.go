package worker

import (
	"bytes"
	"context"
	"io"

	"github.com/rs/zerolog"
)

// Stream joins a run's program to a stream of events: what it prints about the
// stream goes only there, what the stream has for it is given to its
// session.
type Stream struct {
	// Attach is told, when the program was started, where to write the lines for it.
	// Writing does not block; an error that wraps ErrUnread means that the program
	// has too much unread, and that nothing of p was taken.
	Attach func(lines io.Writer)

	// Take takes a line of the program's, which ends in a newline. The program's
	// output is not read meanwhile. The slice is only valid during the call.
	Take func(ctx context.Context, line []byte) error
}

// pass passes a line on. One that the stream does not take is lost: the stream is
// over, or has its worker start anew, and the line had no effect.
func (s *Stream) pass(ctx context.Context, line []byte, log zerolog.Logger) {
	line = append(bytes.TrimSuffix(line[:len(line):len(line)], []byte("\n")), '\n')
	if err := s.Take(ctx, line); err != nil {
		log.Debug().Err(err).Msg("a stream line was not accepted")
	}
}
