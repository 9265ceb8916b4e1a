package gateway

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/agentsched/agentsched/internal/gateway/credential"
)

// relayBuffer is the most bytes of an answer that are held at once.
const relayBuffer = 32 << 10

// errCut is the error of an answer that was begun and did not come to its end.
var errCut = errors.New("the answer was cut")

// relay passes an answer on as it comes, each piece at once, and meters it. Its error wraps errCut: the headers are out.
func (g *Gateway) relay(w http.ResponseWriter, res *http.Response, secret string, m *meter) error {
	buffer := g.buffers.Get().(*[]byte)
	defer g.buffers.Put(buffer)
	c := &concealer{to: w}
	if len(secret) >= credential.MinSecret {
		c.secret = []byte(secret)
	}
	control := http.NewResponseController(w)
	for {
		n, err := res.Body.Read(*buffer)
		if n > 0 {
			m.feed((*buffer)[:n])
			if _, err := c.Write((*buffer)[:n]); err != nil {
				return fmt.Errorf("%w: the run has left: %w", errCut, err)
			}
			if m.events {
				_ = control.Flush() // a run that has left is noticed by the next write
			}
		}
		switch {
		case err == io.EOF:
			if err := c.Close(); err != nil {
				return fmt.Errorf("%w: the run has left: %w", errCut, err)
			}
			return nil
		case err != nil:
			_ = control.Flush() // the run's program sees an answer that was cut, as ours was, and not none
			return fmt.Errorf("%w: %w", errCut, err)
		}
	}
}

// isEvents reports whether an answer is a stream of server-sent events.
func isEvents(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}
