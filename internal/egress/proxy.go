package egress

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Resolver finds the addresses of a host; *net.Resolver is one. The network is "ip".
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config is what a Proxy is made of. Its functions are called by many goroutines at once.
type Config struct {
	// Key is the password that each request has to send in Proxy-Authorization, since a
	// loopback that is the host's is everybody's; "": none is asked for.
	Key   string
	Rules Rules
	// Private are ranges of private addresses that every allowed host may be in.
	Private []netip.Prefix
	// Upstream returns the proxy through which a URL is reached, nil for none, as
	// golang.org/x/net/http/httpproxy has it from the environment; nil: there is none.
	// Only the scheme http is spoken with it. Names are resolved there, so that their
	// addresses are not checked.
	Upstream func(*url.URL) (*url.URL, error)
	// Record is told of each connection when it has ended; nil: nobody is.
	Record func(Record)
	// Ask is asked for a host that the rules do not name, while its client waits; nil
	// refuses. Yes is for the one connection, and for public addresses.
	Ask func(ctx context.Context, host string, port uint16) bool

	Resolver Resolver                                                          // nil: net.DefaultResolver
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error) // nil: by net.Dialer

	// What 0 means stands behind each bound.
	Idle           time.Duration // without a byte in either direction; 5 minutes
	Lifetime       time.Duration // of a connection; 6 hours
	MaxBytes       int64         // of a connection, both directions; 16 GiB
	MaxConnections int           // at once; 128
	MaxRecords     int           // of allowed connections, and as many of refused ones; 1000
}

// Why a connection was ended.
var (
	errClosed   = errors.New("the run's network has ended")
	errIdle     = errors.New("idle for too long")
	errLifetime = errors.New("open for too long")
	errBytes    = errors.New("more bytes than a connection may have")
	errGone     = errors.New("the client has gone")
)

// Proxy is an http.Handler for CONNECT and requests in absolute form, over HTTP/1.
type Proxy struct {
	config  Config
	rules   atomic.Pointer[Rules]
	forward *httputil.ReverseProxy
	ctx     context.Context // every connection's
	cancel  context.CancelCauseFunc
	records records
	badKey  sync.Once // told of once: others of the host must not fill the run's records

	mu     sync.Mutex
	open   int
	closed bool
	wg     sync.WaitGroup // of open
}

// New returns a proxy. Its connections end with ctx, and with Close, which must be called.
func New(ctx context.Context, c Config) *Proxy {
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	orDefault(&c.Idle, 5*time.Minute)
	orDefault(&c.Lifetime, 6*time.Hour)
	orDefault(&c.MaxBytes, 16<<30)
	orDefault(&c.MaxConnections, 128)
	orDefault(&c.MaxRecords, 1000)
	p := &Proxy{config: c, records: records{tell: c.Record, max: c.MaxRecords}}
	p.rules.Store(&c.Rules)
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.forward = &httputil.ReverseProxy{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return fromContext(ctx).server, nil },
			Proxy:       func(r *http.Request) (*url.URL, error) { return fromContext(r.Context()).upstream, nil },
			// One connection a request: each is checked and recorded.
			DisableKeepAlives:      true,
			DisableCompression:     true,
			ExpectContinueTimeout:  time.Second,
			MaxResponseHeaderBytes: 1 << 20,
		},
		Rewrite:       rewrite,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { fromContext(r.Context()).fail(w, err) },
	}
	return p
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// URL returns what clients are told of a proxy that listens at addr, HOST:PORT.
func URL(addr, key string) string {
	u := url.URL{Scheme: "http", Host: addr}
	if key != "" {
		u.User = url.UserPassword("run", key)
	}
	return u.String()
}

// Grant replaces what is allowed beside Config.Rules, by entries as Parse takes them, from
// the next connection on. Entries that cannot be used are left out; the error names them.
func (p *Proxy) Grant(entries ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	more, err := p.config.Rules.With(entries)
	p.rules.Store(&more)
	return err
}

// Close ends every connection and waits until all are gone and recorded. Requests that
// come later are refused. It may be called twice.
func (p *Proxy) Close() {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	p.cancel(errClosed)
	p.wg.Wait()
	if !closed {
		p.records.close()
	}
}

// ServeHTTP serves one connection or refuses it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := p.begin(r)
	defer c.end()
	switch {
	case err != nil:
		c.fail(w, err)
	case r.Method == http.MethodConnect:
		c.tunnel(w)
	default:
		c.relay(w, r)
	}
}

// begin counts a connection. What it returns has to be ended, on an error as well.
func (p *Proxy) begin(r *http.Request) (*connection, error) {
	c := &connection{proxy: p, request: r, record: Record{Protocol: HTTP, Start: time.Now()}}
	if r.Method == http.MethodConnect {
		c.record.Protocol = Connect
	}
	var errTarget error
	if c.target, errTarget = requestTarget(r); errTarget == nil {
		c.record.Host, c.record.Port = c.target.name, c.target.port
	}
	p.bound(r.Context(), c)
	if err := p.authorize(r); err != nil {
		c.unrecorded = true
		if err.status == http.StatusForbidden {
			p.badKey.Do(func() { c.unrecorded = false })
		}
		return c, err
	}
	if err := p.count(c); err != nil {
		return c, err
	}
	if errTarget != nil {
		return c, &refusal{status: http.StatusBadRequest, why: errTarget.Error()}
	}
	return c, nil
}

// bound gives a connection its bounds of time, which are of the whole, asking and dialling included.
func (p *Proxy) bound(ctx context.Context, c *connection) {
	ctx, cancelTime := context.WithTimeoutCause(ctx, p.config.Lifetime, errLifetime)
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { c.cancel(context.Cause(p.ctx)) })
	c.release = func() { stop(); c.cancel(nil); cancelTime() }
}

// count adds a connection to the open ones. The error is a *refusal.
func (p *Proxy) count(c *connection) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		c.unrecorded = true
		return &refusal{status: http.StatusServiceUnavailable, why: errClosed.Error()}
	case p.open >= p.config.MaxConnections:
		return &refusal{status: http.StatusServiceUnavailable,
			why: fmt.Sprintf("%d connections are open, which is as many as a run may have; close some and try again", p.open)}
	}
	p.open++
	p.wg.Add(1)
	c.counted = true
	return nil
}

// authorize checks the key. A client that sent none is told to send it, as some do only then.
func (p *Proxy) authorize(r *http.Request) *refusal {
	if p.config.Key == "" {
		return nil
	}
	sent := r.Header.Get("Proxy-Authorization")
	if sent == "" {
		return &refusal{status: http.StatusProxyAuthRequired, why: "the run's proxy wants its key; use the proxy's URL as the run's environment has it"}
	}
	as := http.Request{Header: http.Header{"Authorization": {sent}}}
	if _, key, ok := as.BasicAuth(); ok && subtle.ConstantTimeCompare([]byte(key), []byte(p.config.Key)) == 1 {
		return nil
	}
	return &refusal{status: http.StatusForbidden, why: "the key is not that of this run's proxy; use the proxy's URL as the run's environment has it"}
}
