package pgtest

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Relay is a port before a server that speaks TCP, which loses, holds or delays what is
// said when it is told to.
type Relay struct {
	dial func() (net.Conn, error)
	l    net.Listener
	wg   sync.WaitGroup
	over chan struct{} // closed with the relay

	mu      sync.Mutex // guards what follows
	changed sync.Cond  // of all of it
	pairs   map[*pair]bool
	ended   bool
	cut     bool
	held    bool
	delay   time.Duration
	trap    *trap // nil: none is set
}

// pair is a connection of a client and the one to the server that belongs to it.
type pair struct {
	client, server *net.TCPConn
	// sprung is of the trap that the connection is in: the client hears nothing more,
	// and it is closed when the server has ended the connection. Guarded by Relay.mu.
	sprung chan struct{}
}

// trap cuts one connection in the midst of what its client says.
type trap struct {
	left   int               // bytes, of all connections, that still get through
	at     func([]byte) bool // nil: left decides
	sprung chan struct{}
}

// NewRelay starts a relay on a port of 127.0.0.1 for a test. target is the server's host
// and port.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return NewRelayAt(t, l, func() (net.Conn, error) { return net.Dial("tcp", target) })
}

// NewRelayAt starts a relay on a listener for TCP, which it closes; dial connects to the
// server, also by TCP. Either may be in another network namespace.
func NewRelayAt(t testing.TB, l net.Listener, dial func() (net.Conn, error)) *Relay {
	r := &Relay{dial: dial, l: l, over: make(chan struct{}), pairs: map[*pair]bool{}}
	r.changed.L = &r.mu
	r.wg.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// Address returns the relay's host and port.
func (r *Relay) Address() string { return r.l.Addr().String() }

// Through returns a database's address with the relay's in place of the server's.
func (r *Relay) Through(address string) string {
	return rewrite(address, func(u *url.URL, _ url.Values) { u.Host = r.Address() })
}

// Cut closes all connections and takes no new ones until Mend.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	r.closeAll()
}

func (r *Relay) closeAll() {
	for p := range r.pairs {
		p.client.Close()
		p.server.Close()
	}
	r.changed.Broadcast()
}

// Hold lets nothing through until Mend, not even the end of a connection.
func (r *Relay) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
}

// Mend ends Cut and Hold.
func (r *Relay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut, r.held = false, false
	r.changed.Broadcast()
}

// Delay has what is read from now on, in both directions, wait so long before it is let
// through.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// CutAfter lets n more bytes of clients through, and closes the connection on which the
// last of them comes: the server gets a part of a message. The result is closed then.
// Other connections, and new ones, stay whole.
func (r *Relay) CutAfter(n int) <-chan struct{} { return r.set(&trap{left: n}) }

// CutAt calls f with what clients say, piece by piece, until it returns true. The server
// gets that piece and does what it asks; when it is done, the connection is closed and
// the client has heard nothing of that. The result is closed then. Other connections,
// and new ones, stay whole. Over TLS (see Plain) f sees nothing that it knows.
func (r *Relay) CutAt(f func(said []byte) bool) <-chan struct{} { return r.set(&trap{at: f}) }

func (r *Relay) set(t *trap) <-chan struct{} {
	t.sprung = make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap = t
	return t.sprung
}

func (r *Relay) accept() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(c.(*net.TCPConn)) })
	}
}

func (r *Relay) serve(client *net.TCPConn) {
	defer client.Close()
	r.mu.Lock()
	refused := r.cut
	r.mu.Unlock()
	if refused {
		return
	}
	c, err := r.dial()
	if err != nil {
		return
	}
	defer c.Close()
	p := &pair{client: client, server: c.(*net.TCPConn)}
	r.mu.Lock()
	refused = r.cut || r.ended
	if !refused {
		r.pairs[p] = true
	}
	r.mu.Unlock()
	if refused {
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() { r.answer(p) })
	r.ask(p)
	answers.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, p)
}

// ask passes on what the client says until it is over, or a trap springs.
func (r *Relay) ask(p *pair) {
	buf := make([]byte, 32<<10)
	for {
		n, err := p.client.Read(buf)
		r.wait()
		said, sprung := r.spring(p, buf[:n])
		if len(said) > 0 {
			if _, e := p.server.Write(said); e != nil {
				err = e
			}
		}
		if sprung != nil && p.sprung != nil { // the server ends when it has done all of it
			p.server.CloseWrite() //nolint:errcheck // then it has ended already
			return
		}
		if sprung != nil || err != nil {
			p.client.Close()
			p.server.Close()
		}
		if sprung != nil {
			close(sprung)
		}
		if sprung != nil || err != nil {
			return
		}
	}
}

// spring returns what of said is to be passed on, and if the connection is to be cut
// after that, what to close then.
func (r *Relay) spring(p *pair, said []byte) (_ []byte, sprung chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.trap
	switch {
	case t == nil || len(said) == 0:
		return said, nil
	case t.at == nil && len(said) < t.left:
		t.left -= len(said)
		return said, nil
	case t.at == nil:
		said = said[:t.left]
	case !t.at(said):
		return said, nil
	default:
		p.sprung = t.sprung
	}
	r.trap = nil
	return said, t.sprung
}

// answer passes on what the server says until it is over.
func (r *Relay) answer(p *pair) {
	buf := make([]byte, 32<<10)
	for {
		n, err := p.server.Read(buf)
		r.wait()
		r.mu.Lock()
		sprung := p.sprung
		r.mu.Unlock()
		if n > 0 && sprung == nil {
			if _, e := p.client.Write(buf[:n]); e != nil {
				err = e
			}
		}
		if err != nil {
			p.client.Close()
			p.server.Close()
			if sprung != nil {
				close(sprung)
			}
			return
		}
	}
}

// wait returns when something may be let through.
func (r *Relay) wait() {
	r.mu.Lock()
	delay := r.delay
	r.mu.Unlock()
	if delay > 0 {
		after := time.NewTimer(delay)
		defer after.Stop()
		select {
		case <-after.C:
		case <-r.over:
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held && !r.cut && !r.ended {
		r.changed.Wait()
	}
}

func (r *Relay) close() {
	r.l.Close()
	r.mu.Lock()
	r.ended = true
	close(r.over)
	r.closeAll()
	r.mu.Unlock()
	r.wg.Wait()
}
