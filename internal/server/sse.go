package server

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
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

// open takes a place among the listeners and answers that events follow.
// done gives the place back.
func (s *streams) open(w http.ResponseWriter, r *http.Request) (e *events, done func(), err error) {
	if r.Method == http.MethodHead { // which would be answered when the stream ends
		return nil, nil, newProblem("method_not_allowed", http.StatusMethodNotAllowed, "HEAD is not for a stream, want GET")
	}
	who := s.principal(r.Context())
	if full := s.listeners.add(who, s.max); full != nil {
		return nil, nil, full
	}
	h := w.Header()
	h.Set("Content-Type", eventType)
	h.Set("X-Accel-Buffering", "no") // proxies are not to gather it
	w.WriteHeader(http.StatusOK)
	e = &events{w: w, control: http.NewResponseController(w)}
	e.buffer.WriteString("retry: 2000\n\n")
	return e, func() { s.listeners.remove(who) }, nil
}

// listeners are those who follow a stream.
type listeners struct {
	mu  sync.Mutex
	all int
	by  map[string]int // principal: streams
}

// share returns how many of all streams one principal may follow, so that most are left
// for others.
func share(of int) int { return max(1, of/4) }

// add takes a place, or says why there is none.
func (l *listeners) add(who string, most int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var p *problem
	switch {
	case l.all >= most:
		p = newProblem("too_many_listeners", http.StatusServiceUnavailable, "%d listeners are connected, which is as many as may be", most)
	case who != "" && l.by[who] >= share(most):
		p = newProblem("too_many_streams", http.StatusTooManyRequests, "you follow %d streams already, which is as many as one token, session or user may; end one of them", l.by[who])
	default:
		if l.by == nil {
			l.by = map[string]int{}
		}
		l.all++
		l.by[who]++
		return nil
	}
	p.header = http.Header{"Retry-After": {"10"}}
	return p
}

func (l *listeners) remove(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.by[who]--; l.by[who] == 0 {
		delete(l.by, who)
	}
}

// put adds an event whose data is JSON in one line. An id of "" leaves the last one.
func (e *events) put(id, kind string, data []byte) {
	if id != "" {
		fmt.Fprintf(&e.buffer, "id: %s\n", id)
	}
	fmt.Fprintf(&e.buffer, "event: %s\ndata: %s\n\n", kind, data)
}

// position tells where the stream goes on for a listener that comes back: what it sends
// as Last-Event-ID if it hears no further event.
func (e *events) position(id string) { fmt.Fprintf(&e.buffer, "id: %s\n\n", id) }

// alive adds a line that says nothing.
func (e *events) alive() { e.buffer.WriteString(": alive\n\n") }

// flush sends what was put. An error means that the client has gone.
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
