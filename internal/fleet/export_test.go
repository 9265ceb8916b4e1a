package fleet

import (
	"context"
	"crypto/tls"
	"io"
	"net"
)

// Dial connects to the peers at an address as whoever has the identity; nil: nobody.
func Dial(ctx context.Context, address string, as *Identity) (net.Conn, error) {
	accept := func(string) error { return nil }
	if as != nil {
		p := NewPass(PassConfig{Identity: as})
		return (&tls.Dialer{Config: p.c.Identity.tls(accept)}).DialContext(ctx, "tcp", address)
	}
	return (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}}).DialContext(ctx, "tcp", address)
}

// NewStream is newStream.
func NewStream(body io.ReadCloser, changed <-chan struct{}, wait func(int64)) io.ReadCloser {
	return newStream(body, changed, wait)
}
