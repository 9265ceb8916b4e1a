package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// tunnel serves a CONNECT.
func (c *connection) tunnel(w http.ResponseWriter) {
	if err := c.dial(); err != nil {
		c.fail(w, err)
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		c.fail(w, fmt.Errorf("take the connection over: %w", err))
		return
	}
	defer client.Close()
	closed := context.AfterFunc(c.ctx, func() {
		client.Close()
		c.server.Close()
	})
	defer closed()
	client.SetDeadline(time.Time{})
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	// The server's own reader would end the request's context when the client closes its half.
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	up := make(chan error)
	go func() { up <- c.send(client, bufio.NewReader(&preread{client, early})) }()
	c.pump(client, c.server)
	if err := <-up; err != nil {
		c.record.Allowed, c.record.Reason = false, err.Error()
	}
}

// send carries the client's bytes to the server. An error means that what the client
// began is refused.
func (c *connection) send(client net.Conn, from *bufio.Reader) error {
	first, err := from.Peek(1)
	if err != nil && err != io.EOF { // a socket tells of its reset once
		c.cancel(nil)
		return nil
	}
	if err == nil && first[0] == recordHandshake {
		name, hello, err := readClientHello(from)
		if err == nil {
			err = c.checkServerName(name)
		}
		if err != nil {
			client.Write(accessDenied)
			c.cancel(err)
			return err
		}
		if _, err := c.server.Write(hello); err != nil {
			c.cancel(nil)
			return nil
		}
	}
	c.pump(c.server, from)
	return nil
}

// pump copies until one end closes. The other direction goes on if only this one was
// closed.
func (c *connection) pump(to io.Writer, from io.Reader) {
	_, err := io.Copy(to, from)
	if m, ok := to.(*metered); ok {
		to = m.Conn
	}
	if half, ok := to.(interface{ CloseWrite() error }); err == nil && ok && half.CloseWrite() == nil {
		return
	}
	c.cancel(nil)
}

// checkServerName refuses a name that is neither the CONNECT's nor allowed.
func (c *connection) checkServerName(name string) error {
	if name == "" {
		return nil
	}
	t, err := newTarget(name, c.target.port)
	if err != nil {
		return fmt.Errorf("TLS names a server: %w", err)
	}
	if _, ok := c.proxy.rules.Load().match(t); ok || t == c.target {
		return nil
	}
	return fmt.Errorf("TLS names the server %s, which is not among the hosts of the job's network; to allow it, write in the job file: network: [%s]", t.name, t.entry())
}

// recordHandshake begins each TLS record of a handshake (RFC 8446, 5.1).
const recordHandshake = 0x16

// accessDenied is a fatal alert (RFC 8446, 6.2).
var accessDenied = []byte{0x15, 3, 3, 0, 2, 2, 49}

// maxHello is in bytes, with the records around it; crypto/tls takes no longer message.
const maxHello = 80 << 10

var errHelloRead = errors.New("the ClientHello was read")

// readClientHello returns the server name that a TLS client asks for, "" if none, and
// what it has read.
func readClientHello(r io.Reader) (name string, read []byte, err error) {
	var seen bytes.Buffer
	conn := helloConn{Reader: io.TeeReader(io.LimitReader(r, maxHello), &seen)}
	err = tls.Server(conn, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name = hello.ServerName
		return nil, errHelloRead
	}}).Handshake()
	if !errors.Is(err, errHelloRead) {
		return "", nil, fmt.Errorf("what begins like TLS is no ClientHello: %w", err)
	}
	return name, seen.Bytes(), nil
}

// helloConn is read by a TLS server that says nothing.
type helloConn struct {
	net.Conn // nil
	io.Reader
}

func (c helloConn) Read(b []byte) (int, error)     { return c.Reader.Read(b) }
func (helloConn) Write(b []byte) (int, error)      { return len(b), nil }
func (helloConn) Close() error                     { return nil }
func (helloConn) SetWriteDeadline(time.Time) error { return nil }
