package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	connectTime  = 30 * time.Second // for lookup and dialling together
	attemptTime  = 10 * time.Second // for one address
	maxAddresses = 8                // of a host that are tried
)

// dial connects to the target, if that is allowed. The error is a *refusal where the
// rules are the reason.
func (c *connection) dial() error {
	p := c.proxy
	rule, ok := p.rules.Load().match(c.target)
	if !ok && (p.config.Ask == nil || !p.config.Ask(c.ctx, c.target.name, c.target.port)) {
		return notNamed(c.target)
	}
	ctx, cancel := context.WithTimeout(c.ctx, connectTime)
	defer cancel()
	if via, err := p.upstreamOf(c.target, c.record.Protocol); err != nil {
		return fmt.Errorf("find the upstream proxy: %w", err)
	} else if via != nil {
		return c.dialUpstream(ctx, via, rule)
	}

	addrs := []netip.Addr{c.target.addr}
	if !c.target.addr.IsValid() {
		var err error
		if addrs, err = p.config.Resolver.LookupNetIP(ctx, "ip", c.target.name); err != nil {
			c.record.Allowed = true
			return fmt.Errorf("look the host up: %w", err)
		}
		addrs = addrs[:min(len(addrs), maxAddresses)]
	}
	var refused netip.Addr
	failed := errors.New("the host has no address")
	for _, addr := range addrs {
		addr = addr.Unmap()
		if !p.permits(rule, c.target, addr) {
			refused = addr
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTime)
		conn, err := p.config.Dial(attempt, "tcp", netip.AddrPortFrom(addr, c.target.port).String())
		cancel()
		if err == nil {
			c.record.Address = addr
			c.start(conn)
			return nil
		}
		failed = fmt.Errorf("connect: %w", err)
		c.record.Allowed = true
	}
	if refused.IsValid() && !c.record.Allowed {
		return refusedAddress(c.target, refused)
	}
	c.record.Allowed = true
	return failed
}

// notNamed refuses a target that the rules do not name. Of an address that is not public
// it says so: whoever is asked to allow it should know.
func notNamed(t target) *refusal {
	r := &refusal{status: http.StatusForbidden, why: "not among the hosts of the job's network", allow: t.entry()}
	switch {
	case slices.Contains(metadataNames, t.name):
		r.why += "; it is a cloud's metadata"
	case isLocalhost(t.name) || t.addr.IsValid() && reachOf(t.addr) == loopback:
		r.why += "; it is this machine's loopback"
	case t.addr.IsValid() && reachOf(t.addr) == private:
		r.why += "; it is a private address"
	case t.addr.IsValid() && reachOf(t.addr) != public:
		r.why += "; it is link-local, reserved or a cloud's metadata"
	}
	return r
}

// permits says whether a target that the rules allow may be at an address.
func (p *Proxy) permits(by rule, t target, addr netip.Addr) bool {
	kind := reachOf(addr)
	if kind == public {
		return true
	}
	if _, named := p.rules.Load().match(target{name: addr.String(), addr: addr, port: t.port}); named {
		return true
	}
	switch kind {
	case private:
		return by.named || slices.ContainsFunc(p.config.Private, func(r netip.Prefix) bool { return r.Contains(addr) })
	case loopback:
		return by.named && isLocalhost(t.name)
	}
	return false
}

// isLocalhost follows RFC 6761.
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// refusedAddress says what would have to be written for an address that is not public.
func refusedAddress(t target, addr netip.Addr) *refusal {
	r := &refusal{status: http.StatusForbidden, allow: target{name: addr.String(), addr: addr, port: t.port}.String()}
	what := "the address " + addr.String()
	if !t.addr.IsValid() {
		what = "it resolves to " + addr.String() + ", which"
	}
	switch reachOf(addr) {
	case private:
		r.why = what + " is private"
		r.allow = t.String()
	case loopback:
		r.why = what + " is this machine's loopback"
	default:
		r.why = what + " is link-local, reserved or a cloud's metadata"
	}
	return r
}

// upstreamOf returns the proxy between this one and a target; nil if there is none.
func (p *Proxy) upstreamOf(t target, protocol Protocol) (*url.URL, error) {
	if p.config.Upstream == nil {
		return nil, nil
	}
	scheme := "https"
	if protocol == HTTP {
		scheme = "http"
	}
	via, err := p.config.Upstream(&url.URL{Scheme: scheme, Host: t.String()})
	if err == nil && via != nil && via.Scheme != "http" {
		return nil, fmt.Errorf("it has the scheme %q, want http", via.Scheme)
	}
	return via, err
}

// dialUpstream connects to the target through another proxy, which resolves its name.
func (c *connection) dialUpstream(ctx context.Context, via *url.URL, by rule) error {
	t := c.target
	switch {
	case t.addr.IsValid():
		if !c.proxy.permits(by, t, t.addr) {
			return refusedAddress(t, t.addr)
		}
	case slices.Contains(metadataNames, t.name):
		return &refusal{status: http.StatusForbidden, why: "it is a cloud's metadata"}
	case isLocalhost(t.name):
		return &refusal{status: http.StatusForbidden, why: "it would be the loopback of the upstream proxy"}
	}
	port := via.Port()
	if port == "" {
		port = "80"
	}
	conn, err := c.proxy.config.Dial(ctx, "tcp", net.JoinHostPort(via.Hostname(), port))
	c.record.Allowed = true
	if err != nil {
		return fmt.Errorf("connect to the upstream proxy: %w", err)
	}
	if c.record.Protocol == HTTP {
		c.upstream = via
	} else if conn, err = connectThrough(ctx, conn, via, t); err != nil {
		return fmt.Errorf("connect through the upstream proxy: %w", err)
	}
	c.start(conn)
	return nil
}

// connectThrough asks a proxy for a tunnel. It closes conn on an error.
func connectThrough(ctx context.Context, conn net.Conn, via *url.URL, t target) (_ net.Conn, err error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			conn.Close()
		}
	}()
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: t.String()}, Host: t.String(), Header: http.Header{}}
	if via.User != nil {
		password, _ := via.User.Password()
		as := http.Request{Header: http.Header{}}
		as.SetBasicAuth(via.User.Username(), password)
		r.Header.Set("Proxy-Authorization", as.Header.Get("Authorization"))
	}
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	br := bufio.NewReaderSize(&limited{conn, maxUpstreamAnswer}, 4096)
	answer, err := http.ReadResponse(br, r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %.100q", answer.Status)
	}
	// A server that speaks first may have been read already.
	early, _ := br.Peek(br.Buffered())
	return &preread{conn, slices.Clone(early)}, nil
}

// maxUpstreamAnswer is in bytes.
const maxUpstreamAnswer = 64 << 10

// limited fails after so many bytes.
type limited struct {
	net.Conn
	left int
}

func (l *limited) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, errors.New("its answer is too long")
	}
	n, err := l.Conn.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}

// preread is a connection of which some bytes were read already.
type preread struct {
	net.Conn
	early []byte
}

func (p *preread) Read(b []byte) (int, error) {
	if len(p.early) > 0 {
		n := copy(b, p.early)
		p.early = p.early[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// CloseWrite is TCP's.
func (p *preread) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
