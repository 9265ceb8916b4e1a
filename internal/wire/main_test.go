package wire

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childSpool); dir != "" {
		os.Exit(appendForever(dir))
	}
	goleak.VerifyTestMain(m)
}

// network is a network in memory: dialing a host reaches the listener of that name.
type network struct {
	mu    sync.Mutex
	hosts map[string]*listener
	conns []*cable
}

// cable is one end of a connection, which can be cut, or dead: what is written is lost and nothing arrives.
type cable struct {
	net.Conn
	dead, closed chan struct{}
	once         sync.Once
}

func (c *cable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *cable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.dead:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *cable) Write(b []byte) (int, error) {
	select {
	case <-c.dead:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return c.Conn.Write(b)
	}
}

type listener struct {
	name  string
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *listener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.name, Net: "memory"} }

func (n *network) listen(host string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts == nil {
		n.hosts = map[string]*listener{}
	}
	l := &listener{name: host, conns: make(chan net.Conn), done: make(chan struct{})}
	n.hosts[host+":80"] = l
	return l
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.hosts[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("no such host: " + addr)
	}
	near, far := net.Pipe()
	a := &cable{Conn: near, dead: make(chan struct{}), closed: make(chan struct{})}
	select {
	case l.conns <- far:
		n.mu.Lock()
		n.conns = append(n.conns, a)
		n.mu.Unlock()
		return a, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut cuts all connections.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
}

// kill leaves all connections half-open.
func (n *network) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		close(c.dead)
	}
	n.conns = nil
}

// host is a scheduler: its links are those that Accept returned as new ones.
type host struct {
	*Acceptor
	srv     *http.Server
	served  chan struct{}
	links   chan *Link
	resumed chan *Link
	errs    chan error
}

// serve starts a scheduler on a listener. The path of a request is the name of its node.
func serve(tb testing.TB, ln net.Listener, cfg AcceptConfig) *host {
	tb.Helper()
	a, err := NewAcceptor(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	h := &host{Acceptor: a, served: make(chan struct{}), links: make(chan *Link, 2000), resumed: make(chan *Link, 2000), errs: make(chan error, 2000)}
	h.srv = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, resumed, err := a.Accept(w, r, r.URL.Path)
		switch {
		case err != nil:
			h.errs <- err
		case resumed:
			h.resumed <- l
		default:
			h.links <- l
		}
	})}
	go func() {
		defer close(h.served)
		h.srv.Serve(ln) //nolint:errcheck // closed by stop
	}()
	return h
}

func (h *host) stop() {
	h.srv.Close()
	<-h.served
	h.Close("the scheduler stops")
}

// node is a running Dialer.
type node struct {
	*Dialer
	events chan Event
	cancel context.CancelFunc
	end    chan error
}

func dial(tb testing.TB, cfg DialConfig, addresses ...string) *node {
	tb.Helper()
	for _, a := range addresses {
		u, err := url.Parse(a)
		if err != nil {
			tb.Fatal(err)
		}
		cfg.Addresses = append(cfg.Addresses, u)
	}
	if cfg.Channels == 0 {
		cfg.Channels = 3
	}
	n := &node{events: make(chan Event, 1000), end: make(chan error, 1)}
	cfg.Event = func(e Event) { n.events <- e }
	var err error
	if n.Dialer, err = NewDialer(cfg); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() { n.end <- n.Run(ctx) }()
	return n
}

// await returns the next event of that kind; others are passed over.
func (n *node) await(kind EventKind) Event {
	for e := range n.events {
		if e.Kind == kind {
			return e
		}
	}
	panic("unreachable: nobody closes the channel")
}

func (n *node) stop() {
	n.cancel()
	<-n.end
}

func mustSend(tb testing.TB, c *Channel, frames ...string) {
	tb.Helper()
	for _, f := range frames {
		if err := c.Send(context.Background(), []byte(f)); err != nil {
			tb.Fatal(err)
		}
	}
}

func mustRecv(tb testing.TB, c *Channel, frames ...string) {
	tb.Helper()
	for _, want := range frames {
		got, err := c.Recv(context.Background())
		if err != nil || string(got) != want {
			tb.Fatalf("channel %d: got %.80q, %v; want %.80q", c.Number(), got, err, want)
		}
	}
}
