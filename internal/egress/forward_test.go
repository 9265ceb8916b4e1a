package egress

import (
	"io"
	"net"
	"slices"
	"strconv"
	"testing"
)

// TestForward: a port of the loopback is reached as the rules are at the moment, and each connection is recorded.
func TestForward(t *testing.T) {
	service, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	go func() {
		for {
			conn, err := service.Accept()
			if err != nil {
				return
			}
			io.Copy(conn, conn) //nolint:errcheck // the test sees what comes back
			conn.Close()
		}
	}()
	port := uint16(service.Addr().(*net.TCPAddr).Port)
	entry := "127.0.0.1:" + strconv.Itoa(int(port))
	records := make(chan Record, 4)
	p := New(t.Context(), Config{Record: func(r Record) { records <- r }})
	defer p.Close()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		p.Forward(l, port)
		close(ended)
	}()
	for _, c := range []struct {
		granted []string
		want    string
	}{{nil, ""}, {[]string{entry}, "hello"}, {[]string{"localhost:" + strconv.Itoa(int(port))}, "hello"}, {[]string{"127.0.0.1:1"}, ""}} {
		if err := p.Grant(c.granted...); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "hello")    //nolint:errcheck // it may be refused already
		conn.(*net.TCPConn).CloseWrite() //nolint:errcheck // likewise
		text, _ := io.ReadAll(conn)      // a refusal may be a reset
		conn.Close()
		if string(text) != c.want {
			t.Errorf("with %q: %q, want %q", c.granted, text, c.want)
		}
		r := <-records
		if r.Protocol != Direct || r.Host != "127.0.0.1" || r.Port != port || r.Allowed != (c.want != "") || r.Up != int64(len(c.want)) || r.Down != r.Up || !r.Allowed && r.Allow != entry {
			t.Errorf("with %q: %+v", c.granted, r)
		}
	}
	l.Close()
	<-ended
}

func TestLoopbackPorts(t *testing.T) {
	rules, err := Parse([]string{"127.0.0.1:5432", "localhost:8080", "localhost:5432", "127.0.0.1", "example.com:1", "*.localhost.example:2", "[::1]:3"}, Presets())
	if err != nil {
		t.Fatal(err)
	}
	if got := rules.LoopbackPorts(); !slices.Equal(got, []uint16{5432, 8080, 80, 443}) {
		t.Errorf("%v", got)
	}
}
