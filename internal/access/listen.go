package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// Config is where a scheduler listens for TCP.
type Config struct {
	// Addr is HOST:PORT, e.g. "127.0.0.1:7433". An empty host is all interfaces.
	Addr string
	// CertFile and KeyFile are PEM, both or neither. They are read again when they
	// change.
	CertFile, KeyFile string
	Tokens            *Tokens
	// Inherited, if it is not nil, is a *net.TCPListener that another process has
	// handed over. It is taken instead of opening Addr, and closed on an error.
	Inherited net.Listener
	// Log is told of a certificate that could not be read again. The zero value
	// tells nobody.
	Log zerolog.Logger
}

// Listener accepts connections for http.Server.Serve, over TLS if there is a
// certificate.
type Listener struct {
	net.Listener
	tcp *net.TCPListener
	tls bool
}

// TLS reports whether it speaks TLS, so that its URLs begin with https.
func (l *Listener) TLS() bool { return l.tls }

// SyscallConn gives access to the listening socket, below TLS, for handing it over to
// another program.
func (l *Listener) SyscallConn() (syscall.RawConn, error) { return l.tcp.SyscallConn() }

// resolveWithin bounds how long a host name is looked for.
const resolveWithin = 10 * time.Second

// Listen listens on c.Addr. Beyond loopback it refuses to without TLS and a token
// that lets somebody in; the error says what is missing. A key that others can
// read is refused too. A host is resolved once, and what was judged is what is
// listened on.
func Listen(c Config) (l *Listener, err error) {
	defer func() {
		if err != nil && c.Inherited != nil {
			c.Inherited.Close()
		}
	}()
	var addr netip.AddrPort
	var tcp *net.TCPListener
	if c.Inherited != nil {
		var ok bool
		if tcp, ok = c.Inherited.(*net.TCPListener); !ok {
			return nil, fmt.Errorf("listen on %s: what was handed over listens on %s %s, want tcp", c.Addr, c.Inherited.Addr().Network(), c.Inherited.Addr())
		}
		addr, c.Addr = tcp.Addr().(*net.TCPAddr).AddrPort(), tcp.Addr().String()
	} else if addr, err = resolve(c.Addr); err != nil {
		return nil, err
	}
	cert, err := openCertificate(c.CertFile, c.KeyFile, c.Log)
	if err != nil {
		return nil, err
	}
	if !addr.Addr().Unmap().IsLoopback() {
		if err := mayLeaveLoopback(&c, cert != nil); err != nil {
			return nil, err
		}
	}
	if tcp == nil {
		if tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr)); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", c.Addr, err)
		}
	}
	l = &Listener{Listener: tcp, tcp: tcp}
	if cert != nil {
		l.tls = true
		l.Listener = tls.NewListener(tcp, &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: cert.get, NextProtos: []string{"h2", "http/1.1"},
		})
	}
	return l, nil
}

// resolve returns the address that HOST:PORT stands for. The unspecified one stands
// for all interfaces.
func resolve(text string) (netip.AddrPort, error) {
	fail := func(err error) (netip.AddrPort, error) {
		return netip.AddrPort{}, fmt.Errorf("listen on %q: %w; want HOST:PORT, e.g. 127.0.0.1:7433", text, err)
	}
	host, service, err := net.SplitHostPort(text)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveWithin)
	defer cancel()
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return fail(err)
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port)), nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fail(err)
	}
	if len(addrs) == 0 {
		return fail(errors.New("the name has no address"))
	}
	addr, err := choose(host, addrs)
	if err != nil {
		return fail(err)
	}
	return netip.AddrPortFrom(addr, uint16(port)), nil
}

// choose returns the address to listen on: of IPv4, if there is one. A name that is
// loopback only in part counts as beyond, and localhost has to be loopback.
func choose(host string, addrs []netip.Addr) (netip.Addr, error) {
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	beyond := slices.IndexFunc(addrs, func(a netip.Addr) bool { return !a.IsLoopback() })
	if beyond < 0 {
		return addrs[0], nil
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return netip.Addr{}, fmt.Errorf("localhost is %s on this host, which is not loopback: mend /etc/hosts or say 127.0.0.1", addrs[beyond])
	}
	return addrs[beyond], nil
}

// mayLeaveLoopback says what is missing before others may reach the scheduler.
func mayLeaveLoopback(c *Config, hasTLS bool) error {
	var missing []string
	if !hasTLS {
		missing = append(missing, "TLS: set api.tls.cert and api.tls.key to a certificate and its key")
	}
	n := 0
	if c.Tokens != nil {
		var err error
		if n, err = c.Tokens.Usable(context.Background()); err != nil {
			return fmt.Errorf("listen on %s: %w", c.Addr, err)
		}
	}
	if n == 0 {
		missing = append(missing, "a token that is valid: `scheduler token create NAME --role read|submit|operate` makes one")
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("listen on %q, which is beyond loopback, is refused without %s; or listen on 127.0.0.1", c.Addr, strings.Join(missing, ", and without "))
}
