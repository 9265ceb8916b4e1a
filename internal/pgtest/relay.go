package pgtest

import (
	"net"
	"sync"
	"testing"
)

// Relay is a port before a server, or before anything that speaks TCP, which loses
// connections when it is told to.
type Relay struct {
	Port   int
	target string
	l      net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex // guards what follows
	moved sync.Cond  // of all of it
	conns map[net.Conn]bool
	cut   bool
	held  bool
	watch func(fromClient bool, data []byte) (cut bool)
	ended bool
}

// NewRelay starts a relay before a port of this host for a test.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Port: l.Addr().(*net.TCPAddr).Port, target: target, l: l, conns: map[net.Conn]bool{}}
	r.moved.L = &r.mu
	r.wg.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *Relay) accept() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(c) })
	}
}

func (r *Relay) serve(client net.Conn) {
	defer client.Close()
	r.mu.Lock()
	refused := r.cut
	r.mu.Unlock()
	if refused {
		return
	}
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	if r.cut || r.ended {
		r.mu.Unlock()
		return
	}
	r.conns[client], r.conns[server] = true, true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, client)
		delete(r.conns, server)
	}()
	var both sync.WaitGroup
	both.Go(func() { r.pump(server, client, true) })
	both.Go(func() { r.pump(client, server, false) })
	both.Wait()
}

// pump copies what comes from one end, until that is closed, and closes the other.
func (r *Relay) pump(to, from net.Conn, fromClient bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		for r.held && !r.ended && !r.cut {
			r.moved.Wait()
		}
		watch := r.watch
		r.mu.Unlock()
		if n > 0 && watch != nil && watch(fromClient, buf[:n]) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Cut closes all connections and takes no new ones until Mend.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for c := range r.conns {
		c.Close()
	}
	r.moved.Broadcast()
}

// Mend ends Cut and Hold.
func (r *Relay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut, r.held = false, false
	r.moved.Broadcast()
}

// Hold lets nothing through, without closing anything, until Mend.
func (r *Relay) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
}

// Watch calls f with all that is to be let through; a connection is closed instead where
// it returns true. nil: it is not asked.
func (r *Relay) Watch(f func(fromClient bool, data []byte) (cut bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch = f
}

func (r *Relay) close() {
	r.l.Close()
	r.mu.Lock()
	r.ended = true
	for c := range r.conns {
		c.Close()
	}
	r.moved.Broadcast()
	r.mu.Unlock()
	r.wg.Wait()
}
