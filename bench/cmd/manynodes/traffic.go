package main

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
)

// traffic counts what goes over connections.
type traffic struct{ sent, received, out, in atomic.Int64 }

func (t *traffic) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: c, traffic: t}, nil
}

// counted is a connection under TLS.
type counted struct {
	net.Conn
	traffic   *traffic
	read, put records
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.in.Add(int64(n))
	c.traffic.received.Add(c.read.count(p[:n]))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.traffic.out.Add(int64(n))
	c.traffic.sent.Add(c.put.count(p[:n]))
	return n, err
}

// headerSize is that of a record: type, version, length (RFC 8446, 5.1).
const headerSize = 5

// records counts the records of data in one direction of a connection.
type records struct {
	header [headerSize]byte
	have   int // bytes of the header
	left   int // bytes of the record's content
}

func (r *records) count(p []byte) (n int64) {
	const data = 23 // content type application_data
	for len(p) > 0 {
		if r.left > 0 {
			skip := min(r.left, len(p))
			r.left -= skip
			p = p[skip:]
			continue
		}
		k := copy(r.header[r.have:], p)
		r.have += k
		p = p[k:]
		if r.have < headerSize {
			return n
		}
		r.have, r.left = 0, int(binary.BigEndian.Uint16(r.header[3:]))
		if r.header[0] == data {
			n++
		}
	}
	return n
}
