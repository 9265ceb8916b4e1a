package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// listened is a listener that says when it was closed. Several may close it at once:
// the http.Server, and what listens to its end.
type listened struct {
	net.Listener
	closed chan struct{}
	once   sync.Once // closes closed
}

func (l *listened) Close() error {
	err := l.Listener.Close()
	l.once.Do(func() { close(l.closed) })
	return err
}

func listen(t *testing.T) *listened {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &listened{Listener: l, closed: make(chan struct{})}
}

// TestFinish: a request on a connection that was accepted before the end is
// answered although it is sent only afterwards; one that is under way is too.
func TestFinish(t *testing.T) {
	accepted, begun, goOn := make(chan struct{}, 8), make(chan struct{}), make(chan struct{})
	s := NewServer(&http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(begun)
				<-goOn
			}
			fmt.Fprint(w, "done")
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				accepted <- struct{}{}
			}
		},
	})
	l := listen(t)
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		<-accepted
		return c
	}
	ask := func(c net.Conn, path string) { fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path) }
	idle, slow, late, silent := dial(), dial(), dial(), dial()
	for _, c := range []net.Conn{idle, slow, late, silent} {
		defer c.Close()
	}
	answered := func(c net.Conn) {
		t.Helper()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("got %s", resp.Status)
		}
	}
	ask(idle, "/")
	answered(idle)
	ask(slow, "/slow")
	<-begun
	finished := make(chan error)
	go func() { finished <- s.Finish(t.Context()) }()
	<-l.closed
	ask(late, "/")
	answered(late)
	close(goOn)
	answered(slow)
	for _, c := range []net.Conn{idle, silent} { // nothing was asked on them
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a connection without a request: read %d, %v", n, err)
		}
	}
	if err := <-finished; err != nil {
		t.Errorf("finish: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	again := listen(t)
	if err := s.Serve(again); err != nil {
		t.Errorf("serve after the end: %v", err)
	}
	<-again.closed
}

// TestFinishGivesUp: an answer that does not end is cut off when the time is up.
func TestFinishGivesUp(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	s := NewServer(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	})})
	l := listen(t)
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-begun
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("no more time"))
	defer cancel()
	if err := s.Finish(ctx); err == nil || err.Error() != "no more time" {
		t.Errorf("got %v", err)
	}
	<-ended
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestServeFails: a listener that breaks is told of.
func TestServeFails(t *testing.T) {
	s := NewServer(&http.Server{})
	l := listen(t)
	l.Listener.Close()
	if err := s.Serve(l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := s.Finish(t.Context()); err != nil {
		t.Error(err)
	}
}
