package fleet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/agentsched/agentsched/internal/access"
)

// revisionHeader tells in an answer how far the leader's queue had come when it was
// given; revisionMark begins a line of a stream that says the same of what follows.
const (
	revisionHeader = "Agentsched-Revision"
	revisionMark   = ":revision "
)

// Peers is where other schedulers reach this one.
type Peers struct {
	Identity *Identity
	Members  Members
	// Revision returns how far the queue has come: it grows with each change, and what an
	// answer tells of is in a copy that has come as far. nil: nobody waits for copies.
	Revision func() int64
}

// Listen returns a listener on l whose connections are of registered schedulers.
func (p *Peers) Listen(l net.Listener) net.Listener {
	return &listener{l, p.Identity.tls(p.accept)}
}

type listener struct {
	net.Listener
	config *tls.Config
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{Conn: tls.Server(c, l.config)}, nil
}

// welcome is what this end of a connection sends when it has accepted the other one. With
// TLS 1.3 that one could not tell otherwise, and would send a request into a connection
// of which nobody knows then how much was read.
const welcome = 0x06

// connection is one end of a connection to another scheduler. It has shown who it is when
// something was read.
type connection struct {
	*tls.Conn
	once    sync.Once
	refused error
}

// Read implements net.Conn. The handshake is a part of the first call.
func (c *connection) Read(p []byte) (int, error) {
	c.once.Do(func() {
		if c.refused = c.Handshake(); c.refused == nil {
			_, c.refused = c.Write([]byte{welcome})
		}
	})
	if c.refused != nil {
		return 0, c.refused
	}
	return c.Conn.Read(p)
}

type connectionKey struct{}

// ConnContext is http.Server's, of connections of Listen.
func (*Peers) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// asker returns the fingerprint of the scheduler that asks; "" if none does.
func asker(ctx context.Context) string {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return ""
	}
	state := c.ConnectionState()
	return shown(&state)
}

func (p *Peers) accept(fingerprint string) error {
	if !p.Members.Member(fingerprint) {
		return fmt.Errorf("no registered scheduler has the certificate %.16s…", fingerprint)
	}
	return nil
}

// Handler returns next for the requests that come by such a connection, with the caller
// that each is passed on for (access.TakeCaller). A scheduler that is no longer
// registered is answered 403.
func (p *Peers) Handler(next http.Handler) http.Handler {
	next = access.TakeCaller(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.accept(asker(r.Context())); err != nil {
			refuse(w, "not_a_member", http.StatusForbidden, "%v", err)
			return
		}
		if p.Revision != nil {
			w = &marked{ResponseWriter: w, revision: p.Revision}
		}
		next.ServeHTTP(w, r)
	})
}

// marked adds to an answer how far the queue has come.
type marked struct {
	http.ResponseWriter
	revision func() int64
	begun    bool
	stream   bool
}

// WriteHeader implements http.ResponseWriter. What the answer tells of was done before.
func (m *marked) WriteHeader(status int) {
	if !m.begun && status >= 200 {
		m.begun, m.stream = true, isStream(m.Header())
		m.Header().Set(revisionHeader, strconv.FormatInt(m.revision(), 10))
	}
	m.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. A stream is written in whole lines.
func (m *marked) Write(text []byte) (int, error) {
	if !m.begun {
		m.WriteHeader(http.StatusOK)
	}
	if m.stream {
		if _, err := fmt.Fprintf(m.ResponseWriter, "%s%d\n", revisionMark, m.revision()); err != nil {
			return 0, err
		}
	}
	return m.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (m *marked) Unwrap() http.ResponseWriter { return m.ResponseWriter }
