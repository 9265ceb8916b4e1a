package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// loopback4 is where a port of this machine's loopback is found.
var loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// LoopbackPorts returns the ports of this machine's 127.0.0.1 that the rules name, by that address or as localhost, each
// once. Clients reach these without a proxy: see Env.
func (r Rules) LoopbackPorts() (ports []uint16) {
	seen := map[uint16]bool{}
	for _, rule := range r.rules {
		if rule.addr != loopback4 && (!rule.named || rule.host != "localhost") {
			continue
		}
		for _, port := range rule.ports {
			if !seen[port] {
				seen[port] = true
				ports = append(ports, port)
			}
		}
	}
	return ports
}

// Forward takes each connection of l for one to a port of this machine's 127.0.0.1, which the rules have to name at that
// time. It returns when l is closed and its connections have ended.
func (p *Proxy) Forward(l net.Listener, port uint16) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		client, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			select { // such as no more descriptors
			case <-time.After(10 * time.Millisecond):
				continue
			case <-p.ctx.Done():
				return
			}
		}
		serving.Go(func() { p.forwardOne(client, port) })
	}
}

func (p *Proxy) forwardOne(client net.Conn, port uint16) {
	defer client.Close()
	c := &connection{proxy: p, target: target{name: loopback4.String(), addr: loopback4, port: port}}
	c.record = Record{Protocol: Direct, Host: c.target.name, Port: port, Start: time.Now()}
	p.bound(context.Background(), c)
	defer c.end()
	err := p.count(c)
	if err == nil {
		err = c.dialLoopback()
	}
	if err != nil {
		c.because(err)
		return
	}
	closed := context.AfterFunc(c.ctx, func() {
		client.Close()
		c.server.Close()
	})
	defer closed()
	var up sync.WaitGroup
	up.Go(func() { c.pump(c.server, client) })
	c.pump(client, c.server)
	up.Wait()
}

// dialLoopback is dial for a port that may be named as localhost's as well.
func (c *connection) dialLoopback() error {
	rules, named := c.proxy.rules.Load(), target{name: "localhost", port: c.target.port}
	if _, ok := rules.match(c.target); !ok {
		if _, ok := rules.match(named); ok {
			c.target = named
		}
	}
	return c.dial()
}
