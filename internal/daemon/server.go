package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// silentTime is how long a connection may have said nothing until Finish takes
// it for one that has nothing to say.
const silentTime = 2 * time.Second

// Server serves HTTP and can end without cutting off a request. http.Server's own
// Shutdown cannot: it drops what a client sends on a connection that was accepted,
// but not yet read from, at that time.
type Server struct {
	http    *http.Server
	serving sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	states    map[net.Conn]http.ConnState
	finishing bool
	changed   chan struct{} // capacity 1: something in states has, while finishing
}

// NewServer returns a server that answers as h does. It takes h over: nobody else
// calls its methods or changes its fields from now on.
func NewServer(h *http.Server) *Server {
	s := &Server{http: h, states: map[net.Conn]http.ConnState{}, changed: make(chan struct{}, 1)}
	also := h.ConnState
	h.ConnState = func(c net.Conn, state http.ConnState) {
		s.track(c, state)
		if also != nil {
			also(c, state)
		}
	}
	return s
}

func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(s.states, c)
	} else {
		s.states[c] = state
	}
	if s.finishing {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// Serve answers on l until Finish, and closes it; several listeners are served at
// once. It returns nil if it was told to end.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.finishing {
		s.mu.Unlock()
		return l.Close()
	}
	s.serving.Add(1)
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	defer s.serving.Done()
	err := s.http.Serve(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finishing {
		return nil
	}
	return err
}

// Finish accepts nothing more, answers what was asked, and returns when every
// connection is closed. When ctx ends before that, it closes what is left and
// returns the cause. Answers that never end, such as streams, must be ended by
// whoever gives them.
func (s *Server) Finish(ctx context.Context) error {
	s.mu.Lock()
	s.finishing = true
	for _, l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()                   // whatever was accepted is tracked by then
	s.http.SetKeepAlivesEnabled(false) // closes those that wait for another request
	err := s.wait(ctx)
	// What is left speaks HTTP/2, which Shutdown ends in order.
	if err == nil && s.http.Shutdown(ctx) != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// wait returns when every request of HTTP/1 that had begun was answered, and
// closes connections that said nothing.
func (s *Server) wait(ctx context.Context) error {
	silent := time.NewTimer(silentTime)
	defer silent.Stop()
	for patient := true; ; {
		busy, mute := s.open()
		if busy == 0 && (!patient || len(mute) == 0) {
			for _, c := range mute {
				c.Close()
			}
			return nil
		}
		select {
		case <-s.changed:
		case <-silent.C:
			patient = false
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// open returns how many connections of HTTP/1 have a request, and those that have
// said nothing yet.
func (s *Server) open() (busy int, mute []net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, state := range s.states {
		secure, ok := c.(*tls.Conn)
		switch {
		case state == http.StateNew:
			mute = append(mute, c)
		case ok && secure.ConnectionState().NegotiatedProtocol == "h2":
		case state == http.StateActive:
			busy++
		}
	}
	return busy, mute
}
