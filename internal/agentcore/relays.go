package agentcore

import (
	"errors"
	"net"
	"sync"

	"github.com/agentsched/agentsched/internal/egress"
)

// maxRelays bounds the ports of the host's loopback that a run finds at its own.
const maxRelays = 32

// openRelays has the run find ports of the host's loopback that its network names at the same ports of the loopback that
// it has. Clients do not ask a proxy for these. At level strict each process brings a listener of its own loopback, else
// its connections are led to a listener of the core's. A port that neither can be done for is reached by the proxy alone.
func (c *Confinement) openRelays() error {
	for _, port := range c.rules.LoopbackPorts() {
		switch {
		case len(c.held.Ports)+len(c.held.Redirect) > maxRelays:
			return nil
		case c.own:
			if port >= 1024 && port != ownPort {
				c.held.Ports = append(c.held.Ports, port)
			}
		case c.host.Notify == nil:
			l, err := listenLoopback()
			if err != nil {
				return err
			}
			if c.held.Redirect == nil {
				c.held.Redirect = map[uint16]uint16{}
			}
			c.held.Redirect[port] = uint16(l.Addr().(*net.TCPAddr).Port)
			c.relays.serve(c.proxy, l, port)
		}
	}
	return nil
}

// relays are listeners whose connections go to ports of the host's loopback.
type relays struct {
	serving sync.WaitGroup

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
}

func (r *relays) serve(p *egress.Proxy, l net.Listener, port uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, l)
	r.serving.Go(func() { p.Forward(l, port) })
}

// close ends the listeners, and waits for the connections, which the proxy has ended.
func (r *relays) close() error {
	r.mu.Lock()
	var errs []error
	for _, l := range r.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	r.mu.Unlock()
	r.serving.Wait()
	return errors.Join(errs...)
}
