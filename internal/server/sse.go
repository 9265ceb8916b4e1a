package server

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// aliveTime is how long a stream is silent at most, so that both ends find out
// when the other is gone.
const aliveTime = 15 * time.Second

// eventType is the content type of Server-Sent Events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
const eventType = "text/event-stream"

// events writes Server-Sent Events. What is written is sent with flush.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  bytes.Buffer
}

// openEvents takes a place among the listeners and answers that events follow.
// done gives the place back.
func (s *Server) openEvents(w http.ResponseWriter, r *http.Request) (e *events, done func(), err error) {
	if r.Method == http.MethodHead { // which would be answered when the stream ends
		return nil, nil, newProblem("method_not_allowed", http.StatusMethodNotAllowed, "HEAD is not for a stream, want GET")
	}
	if n := s.listeners.Add(1); n > int64(s.opt.MaxListeners) {
		s.listeners.Add(-1)
		p := newProblem("too_many_listeners", http.StatusServiceUnavailable, "%d listeners are connected, which is as many as may be", s.opt.MaxListeners)
		p.header = http.Header{"Retry-After": {"10"}}
		return nil, nil, p
	}
	h := w.Header()
	h.Set("Content-Type", eventType)
	h.Set("X-Accel-Buffering", "no") // proxies are not to gather it
	w.WriteHeader(http.StatusOK)
	e = &events{w: w, control: http.NewResponseController(w)}
	e.buffer.WriteString("retry: 2000\n\n")
	return e, func() { s.listeners.Add(-1) }, nil
}

// put adds an event whose data is JSON in one line. An id of "" leaves the last one.
func (e *events) put(id, kind string, data []byte) {
	if id != "" {
		fmt.Fprintf(&e.buffer, "id: %s\n", id)
	}
	fmt.Fprintf(&e.buffer, "event: %s\ndata: %s\n\n", kind, data)
}

// alive adds a line that says nothing.
func (e *events) alive() { e.buffer.WriteString(": alive\n\n") }

// flush sends what was put. An error means that nobody is there any more.
func (e *events) flush() error {
	if e.buffer.Len() == 0 {
		return nil
	}
	_, err := e.w.Write(e.buffer.Bytes())
	e.buffer.Reset()
	if err != nil {
		return err
	}
	return e.control.Flush()
}
