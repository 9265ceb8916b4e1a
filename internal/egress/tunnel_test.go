package egress

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// hello is the ClientHello of a real client, in one record.
func hello(t *testing.T, name string) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(far, head); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(far, rest); err != nil {
		t.Fatal(err)
	}
	far.Close()
	<-done
	return append(head, rest...)
}

// fragmented is a record as two, so that the name is in the second.
func fragmented(record []byte) []byte {
	piece := func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint16([]byte{record[0], record[1], record[2]}, uint16(len(b))), b...)
	}
	return append(piece(record[5:15]), piece(record[15:])...)
}

// TestServerName: domain fronting is refused before the host has seen a byte.
func TestServerName(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := newWorld(t)
	w.names["example.com"] = web
	for _, at := range []string{":443", ":80"} {
		w.at(web+at, l.Addr().String())
	}
	p := w.proxy(Config{}, "example.com", web, "*.other.example")
	plain := []byte("SSH-2.0-client\r\n")
	for _, c := range []struct {
		what, to string
		send     []byte
		want     string // the record's reason; "": it passes
	}{
		{"its own name", "example.com:443", hello(t, "example.com"), ""},
		{"in other letters", "example.com:443", hello(t, "EXAMPLE.com"), ""},
		{"no name", "example.com:443", hello(t, ""), ""},
		{"another name that is allowed", "example.com:443", hello(t, "a.other.example"), ""},
		{"another name", "example.com:443", hello(t, "hidden.example"), "TLS names the server hidden.example, which is not among the hosts of the job's network; to allow it, write in the job file: network: [hidden.example]"},
		{"in two records", "example.com:443", fragmented(hello(t, "hidden.example")), "TLS names the server hidden.example"},
		{"its own in two records", "example.com:443", fragmented(hello(t, "example.com")), ""},
		{"by address", web + ":443", hello(t, "hidden.example"), "TLS names the server hidden.example"},
		{"on another port", "example.com:80", hello(t, "hidden.example"), "TLS names the server hidden.example"},
		{"no hello", "example.com:443", []byte("\x16\x03\x01\x00\x05hello"), "what begins like TLS is no ClientHello"},
		{"without an end", "example.com:443", append([]byte("\x16\x03\x01\x40\x00\x01\x00\xff\xff"), make([]byte, 16<<10-4)...), "what begins like TLS is no ClientHello"},
		{"no TLS", "example.com:443", plain, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			conn, br := p.connect(c.to)
			host, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			if _, err := conn.Write(c.send); err != nil {
				t.Fatal(err)
			}
			conn.(*net.TCPConn).CloseWrite()
			got, _ := io.ReadAll(host)
			host.Close()
			answer, _ := io.ReadAll(br)
			r := <-w.records
			if c.want == "" {
				if string(got) != string(c.send) || !r.Allowed || r.Reason != "" {
					t.Errorf("the host got %d bytes of %d; record %+v", len(got), len(c.send), r)
				}
				return
			}
			if len(got) > 0 || r.Allowed || !strings.HasPrefix(r.Reason, c.want) || string(answer) != string(accessDenied) {
				t.Errorf("the host got %d bytes, the client %x; record %+v", len(got), answer, r)
			}
		})
	}
}

// TestEarlyBytes: a client need not wait for the answer to its CONNECT.
func TestEarlyBytes(t *testing.T) {
	w := newWorld(t)
	w.names["example.com"] = web
	w.serve(web+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "served") }))
	p := w.proxy(Config{}, "example.com")
	_, br := p.raw("CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
	for _, want := range []string{"", "served"} {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			continue // the tunnel's
		}
		if status, text := body(t, resp, nil); status != 200 || text != want {
			t.Errorf("%d %q", status, text)
		}
	}
}

// TestStreams: what a host sends is passed on at once.
func TestStreams(t *testing.T) {
	w := newWorld(t)
	w.names["example.com"] = web
	next := make(chan struct{})
	w.serve(web+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for range 3 {
			io.WriteString(rw, "data: x\n")
			rw.(http.Flusher).Flush()
			<-next
		}
	}))
	p := w.proxy(Config{}, "example.com")
	resp, err := p.client(nil).Get("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	br := bufio.NewReader(resp.Body)
	for range 3 {
		if line, err := br.ReadString('\n'); line != "data: x\n" {
			t.Fatalf("%q, %v", line, err)
		}
		next <- struct{}{}
	}
}

func FuzzReadClientHello(f *testing.F) {
	f.Add([]byte("\x16\x03\x01\x00\x05hello"))
	f.Fuzz(func(t *testing.T, in []byte) {
		_, read, err := readClientHello(strings.NewReader(string(in)))
		if err == nil && !strings.HasPrefix(string(in), string(read)) {
			t.Errorf("read what was not sent: %x", read)
		}
	})
}

// TestReset: a client that is gone at once takes the host's side along.
func TestReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := newWorld(t)
	w.names["example.com"] = web
	w.at(web+":443", l.Addr().String())
	p := w.proxy(Config{}, "example.com")
	for _, sent := range []string{"", "hello"} {
		conn, _ := p.connect("example.com:443")
		host, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close() // not before the record: the host says and closes nothing
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(host, make([]byte, len(sent))); err != nil {
			t.Fatal(err)
		}
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
		if r := <-w.records; r.Host != "example.com" || !r.Allowed || r.Up != int64(len(sent)) {
			t.Errorf("record %+v", r)
		}
	}
}
