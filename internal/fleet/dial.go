package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
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

// isUnreached reports whether nothing of a request has come to the other end. With TLS
// 1.3 a certificate that the other end does not take shows when its answer is read: it
// has read no request then.
func isUnreached(err error) bool {
	if _, ok := errors.AsType[*unreachedError](err); ok {
		return true
	}
	remote, ok := errors.AsType[*net.OpError](err)
	return ok && remote.Op == "remote error" && strings.Contains(remote.Error(), "certificate")
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
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}
