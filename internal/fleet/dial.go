package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Bounds of a connection's beginning.
const (
	dialTime      = 3 * time.Second
	handshakeTime = 5 * time.Second // which may begin only when the other end has come to lead
)

// unreachedError is why there is no connection: nothing was sent.
type unreachedError struct {
	leader Leader
	why    error
}

func (e *unreachedError) Error() string {
	return fmt.Sprintf("connect to the leader %s at %s: %v", e.leader.Instance, e.leader.Address, e.why)
}

func (e *unreachedError) Unwrap() error { return e.why }

func isUnreached(err error) bool {
	_, ok := errors.AsType[*unreachedError](err)
	return ok
}

// transport returns what reaches the leader, over connections to this one alone.
func (p *Pass) transport(leader Leader) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.via != nil && p.to.Address == leader.Address && p.to.Fingerprint == leader.Fingerprint {
		return p.via
	}
	if p.via != nil {
		p.via.CloseIdleConnections()
	}
	p.to, p.via = leader, &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := p.dial(ctx, leader)
			if err != nil {
				return nil, &unreachedError{leader, err}
			}
			return conn, nil
		},
		MaxResponseHeaderBytes: mostHeader, MaxIdleConnsPerHost: 32, IdleConnTimeout: idleConnection, DisableCompression: true,
	}
	return p.via
}

// dial connects to the leader, and to nobody else.
func (p *Pass) dial(ctx context.Context, leader Leader) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTime}
	conn, err := dialer.DialContext(ctx, "tcp", leader.Address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, p.c.Identity.tls(func(fingerprint string) error {
		if fingerprint != leader.Fingerprint {
			return fmt.Errorf("its certificate is %.16s…, and the leader has registered %.16s…", fingerprint, leader.Fingerprint)
		}
		return nil
	}))
	if err := welcomed(ctx, secure); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// welcomed returns when the other end has accepted this one.
func welcomed(ctx context.Context, c *tls.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) }) //nolint:errcheck // the read says so
	var word [1]byte
	_, err := io.ReadFull(c, word[:])
	switch {
	case !stop():
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("it does not accept this scheduler: %w", err)
	case word[0] != welcome:
		return fmt.Errorf("it begins with byte %#x, want %#x: it is no scheduler of this version", word[0], welcome)
	}
	return nil
}
