package trigger

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/agentsched/agentsched/job"
)

// DefaultListen is where webhooks are heard: only from this host, e.g. from a
// reverse proxy that speaks TLS.
const DefaultListen = "127.0.0.1:7878"

// Listener is where webhooks are heard.
type Listener struct {
	// Where webhooks are heard, if there are any: IP address and port.
	Listen string `json:"listen"`
	// Permits an address that other hosts reach.
	AllowRemote bool `json:"allow_remote,omitempty"`
}

// DefaultListener listens to this host alone.
func DefaultListener() Listener { return Listener{Listen: DefaultListen} }

// Validate returns the rules that l breaks, each a *job.FieldError.
func (l Listener) Validate() error {
	at, err := netip.ParseAddrPort(l.Listen)
	if err != nil {
		return &job.FieldError{Field: "listen", Message: fmt.Sprintf("%q is not an IP address and a port, want such as %s", l.Listen, DefaultListen)}
	}
	if !at.Addr().Unmap().IsLoopback() && !l.AllowRemote {
		return &job.FieldError{Field: "listen", Message: fmt.Sprintf("%q is heard by other hosts; want one of 127.0.0.1 or [::1] behind a proxy that speaks TLS, or say allow_remote: true", l.Listen)}
	}
	return nil
}

// Open listens.
func (l Listener) Open() (net.Listener, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", l.Listen)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("listen for webhooks on %s: %w; set webhooks.listen to another address", l.Listen, err)
	}
	return ln, nil
}
