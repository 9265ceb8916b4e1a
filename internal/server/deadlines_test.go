package server_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/server"
)

// TestSlowBody: a body that does not come is not waited for for ever. The handler's
// own time is not bounded by that of the body.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		srv := &http.Server{Handler: server.Timed(func(w http.ResponseWriter, r *http.Request) {
			if _, err := bufio.NewReader(r.Body).ReadString('.'); err != nil {
				w.WriteHeader(http.StatusRequestTimeout)
				return
			}
			r.Body.Read(make([]byte, 1)) //nolint:errcheck // its end
			select {
			case <-r.Context().Done():
				w.WriteHeader(http.StatusInternalServerError)
			case <-time.After(time.Hour):
			}
		})}
		done := make(chan error, 1)
		go func() { done <- srv.Serve(l) }()
		for body, want := range map[string]int{"half": http.StatusRequestTimeout, "whole.": http.StatusOK} {
			c := l.dial()
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\n%s", body)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%q: %v, %v; want %d", body, resp, err, want)
			}
			c.Close()
		}
		srv.Close()
		<-done
	})
}

// pipeListener accepts connections in memory, which know deadlines.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{make(chan net.Conn), make(chan struct{})}
}

func (l *pipeListener) dial() net.Conn {
	ours, theirs := net.Pipe()
	l.conns <- theirs
	return ours
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { close(l.closed); return nil }

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
