package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func body(t *testing.T, resp *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestPlainRequest(t *testing.T) {
	w := newWorld(t)
	w.names["example.com"] = web
	w.serve(web+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "Keep-Alive", "X-Hop", "Upgrade", "Http2-Settings", "X-Forwarded-For"} {
			if v, ok := r.Header[name]; ok {
				t.Errorf("the host gets %s: %s", name, v)
			}
		}
		rw.Header().Set("Proxy-Authenticate", `Basic realm="another's"`)
		rw.Header().Set("X-End", "end")
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "%s %s %s %s", r.Method, r.Host, r.RequestURI, b)
	}))
	p := w.proxy(Config{Key: "key"}, "example.com")
	req, _ := http.NewRequest("POST", "http://example.com/a?b=c", strings.NewReader("hello"))
	for k, v := range map[string]string{"Proxy-Connection": "keep-alive", "Connection": "X-Hop, Upgrade", "X-Hop": "1", "Upgrade": "h2c", "HTTP2-Settings": "x"} {
		req.Header.Set(k, v)
	}
	resp, err := p.client(nil).Do(req)
	if status, text := body(t, resp, err); status != 200 || text != "POST example.com /a?b=c hello" {
		t.Errorf("answer %d %q", status, text)
	}
	if resp.Header.Get("Proxy-Authenticate") != "" || resp.Header.Get("X-End") != "end" {
		t.Errorf("headers %v, want X-End without Proxy-Authenticate", resp.Header)
	}
	r := <-w.records
	if r.Protocol != HTTP || r.Host != "example.com" || r.Port != 80 || r.Address != netip.MustParseAddr(web) || !r.Allowed || r.Reason != "" ||
		r.Up < 5 || r.Down < 5 || r.Start.IsZero() || r.Duration <= 0 {
		t.Errorf("record %+v", r)
	}
}

func TestTunnel(t *testing.T) {
	w, ca := newWorld(t), newAuthority(t)
	w.names["example.com"] = web
	w.serveTLS(ca, web, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, r.Host, r.Header.Get("Proxy-Authorization"))
	}), "example.com")
	p := w.proxy(Config{Key: "key"}, "example.com")
	client := p.client(ca)
	resp, err := client.Get("https://example.com/")
	if status, text := body(t, resp, err); status != 200 || text != "example.com" {
		t.Errorf("answer %d %q", status, text)
	}
	client.CloseIdleConnections()
	r := <-w.records
	if r.Protocol != Connect || r.Host != "example.com" || r.Port != 443 || r.Address != netip.MustParseAddr(web) || !r.Allowed || r.Reason != "" || r.Up == 0 || r.Down == 0 {
		t.Errorf("record %+v", r)
	}
}

// TestServerSpeaksFirst: a tunnel waits for no byte of the client, and each side may
// close its own half.
func TestServerSpeaksFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan string, 1)
	go func() {
		defer l.Close()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "220 ready\n")
		b, _ := io.ReadAll(conn)
		served <- string(b)
		io.WriteString(conn, "bye\n")
	}()
	w := newWorld(t)
	w.names["db.example.com"] = "10.1.2.3"
	w.at("10.1.2.3:5432", l.Addr().String())
	p := w.proxy(Config{}, "db.example.com:5432")
	conn, br := p.connect("db.example.com:5432")
	if line, err := br.ReadString('\n'); line != "220 ready\n" {
		t.Fatalf("greeting %q, %v", line, err)
	}
	io.WriteString(conn, "quit")
	conn.(*net.TCPConn).CloseWrite()
	if got := <-served; got != "quit" {
		t.Errorf("the server got %q", got)
	}
	if rest, err := io.ReadAll(br); string(rest) != "bye\n" || err != nil {
		t.Errorf("behind the half that was closed: %q, %v", rest, err)
	}
	if r := <-w.records; r.Up != 4 || r.Down != 14 || r.Reason != "" || !r.Allowed {
		t.Errorf("record %+v", r)
	}
}

// TestRefused: by rules, and by the address that an allowed host has. The world fails
// the test when a name is looked up that it does not know.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		rules, url string
		addresses  string // of the url's host; "": it is not looked up
		private    string // Config.Private
		want       string // a part of the answer; "": allowed
	}{
		{"example.com", "http://other.example/", "", "", "other.example:80: not among the hosts of the job's network\nTo allow it, write in the job file: network: [other.example]\n"},
		{"example.com", "http://example.com:8080/", "", "", "network: [example.com:8080]"},
		{"", "http://secret-as-a-name.attacker.example/", "", "", "not among the hosts"},
		{"example.com", "http://93.184.215.14/", "", "", "network: [93.184.215.14]"},
		{"", "http://[2606:4700::1]:8080/", "", "", "network: [[2606:4700::1]:8080]"},
		{"", "http://localhost/", "", "", "network: [localhost:80]"},
		{"", "http://127.1/", "", "", "is no address and ends like one"},
		{"example.com", "http://example.com/", web, "", ""},
		{"example.com", "http://example.com/", "10.0.0.1", "", "it resolves to 10.0.0.1, which is private\nTo allow it, write in the job file: network: [example.com:80]"},
		{"example.com:80", "http://example.com/", "10.0.0.1", "", ""},
		{"example.com,10.0.0.1", "http://example.com/", "10.0.0.1", "", ""},
		{"example.com,10.0.0.1:81", "http://example.com/", "10.0.0.1", "", "is private"},
		{"*.example.com:80", "http://a.example.com/", "10.0.0.1", "", "is private"},
		{"example.com", "http://example.com/", "10.0.0.1", "10.0.0.0/8", ""},
		{"example.com", "http://example.com/", "127.0.0.1", "127.0.0.0/8", "is this machine's loopback"},
		{"example.com:80", "http://example.com/", "127.0.0.1", "", "network: [127.0.0.1:80]"},
		{"localhost:80", "http://localhost/", "127.0.0.1", "", ""},
		{"127.0.0.1:80", "http://127.0.0.1/", "", "", ""},
		{"[::1]:80", "http://[::1]/", "", "", ""},
		{"example.com:80", "http://example.com/", "169.254.169.254", "169.254.0.0/16", "link-local, reserved or a cloud's metadata\nTo allow it, write in the job file: network: [169.254.169.254:80]"},
		{"metadata.google.internal:80", "http://metadata.google.internal/", "169.254.169.254", "", "a cloud's metadata"},
		{"169.254.169.254", "http://169.254.169.254/", "", "", ""},
		{"example.com:80", "http://example.com/", "fd00:ec2::254", "fc00::/7", "a cloud's metadata"},
		{"example.com:80", "http://example.com/", "0.0.0.0", "", "reserved"},
		{"example.com:80", "http://example.com/", "::ffff:127.0.0.1", "", "it resolves to 127.0.0.1, which is this machine's loopback"},
		{"example.com:80", "http://example.com/", "2002:7f00:1::", "", "reserved"},
		// Only the addresses that may be reached are tried.
		{"example.com", "http://example.com/", "127.0.0.1,93.184.215.14", "", ""},
	} {
		t.Run(c.rules+" "+c.url+" "+c.addresses, func(t *testing.T) {
			w := newWorld(t)
			u, _ := url.Parse(c.url)
			if c.addresses != "" {
				w.names[u.Hostname()] = c.addresses
			}
			for addr := range strings.SplitSeq(c.addresses+","+u.Hostname(), ",") {
				w.serve(net.JoinHostPort(strings.TrimPrefix(addr, "::ffff:"), "80"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "served") }))
			}
			if strings.Contains(c.addresses, ",") {
				delete(w.servers, "127.0.0.1:80")
			}
			var config Config
			if c.private != "" {
				config.Private = []netip.Prefix{netip.MustParsePrefix(c.private)}
			}
			p := w.proxy(config, strings.FieldsFunc(c.rules, func(r rune) bool { return r == ',' })...)
			resp, err := p.client(nil).Get(c.url)
			status, text := body(t, resp, err)
			r := <-w.records
			if c.want == "" {
				if status != 200 || text != "served" || !r.Allowed || len(w.dialled) != 1 {
					t.Errorf("answer %d %q, dialled %v, record %+v", status, text, w.dialled, r)
				}
				return
			}
			if status < 400 || !strings.Contains(text, c.want) || r.Allowed || r.Reason == "" || len(w.dialled) > 0 || c.addresses == "" && len(w.asked) > 0 {
				t.Errorf("answer %d %q, asked for %v, dialled %v, record %+v", status, text, w.asked, w.dialled, r)
			}
		})
	}
}

// TestRebinding: a name that changes its address between a check and a connection.
func TestRebinding(t *testing.T) {
	w := newWorld(t)
	w.names["example.com"] = web
	w.serve(web+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.names["example.com"] = "127.0.0.1"
	}))
	p := w.proxy(Config{}, "example.com")
	for i, want := range []int{200, 403} {
		resp, err := p.client(nil).Get("http://example.com/")
		if status, text := body(t, resp, err); status != want {
			t.Errorf("request %d: %d %q, want %d", i, status, text, want)
		}
	}
	if len(w.asked) != 2 || !slices.Equal(w.dialled, []string{web + ":80"}) {
		t.Errorf("asked for %v, dialled %v, want one lookup a request and one address", w.asked, w.dialled)
	}
}

func TestRedirectIsANewRequest(t *testing.T) {
	w := newWorld(t)
	w.names["example.com"] = web
	w.serve(web+":80", http.RedirectHandler("http://169.254.169.254/latest/meta-data/", http.StatusFound))
	p := w.proxy(Config{}, "example.com")
	resp, err := p.client(nil).Get("http://example.com/")
	if status, text := body(t, resp, err); status != 403 || !strings.Contains(text, "169.254.169.254:80: not among") {
		t.Errorf("answer %d %q", status, text)
	}
}

func TestKey(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(Config{Key: "right"}, "example.com")
	for _, c := range []struct {
		url  string
		want int
	}{{URL(p.addr, ""), 407}, {URL(p.addr, "wrong"), 403}, {URL(p.addr, "wrong"), 403}, {URL(p.addr, "right"), 502}} {
		w.names["example.com"] = web // where nothing listens
		p.url = c.url
		resp, err := p.client(nil).Get("http://example.com/")
		status, text := body(t, resp, err)
		if status != c.want || status == 407 && resp.Header.Get("Proxy-Authenticate") == "" {
			t.Errorf("with %s: %d %q, want %d", c.url, status, text, c.want)
		}
	}
	// No key is a client that waits to be asked; a wrong one is told of once.
	if r := <-w.records; !strings.Contains(r.Reason, "not that of this run") || r.Allowed {
		t.Errorf("record %+v", r)
	}
	if r := <-w.records; !strings.Contains(r.Reason, "connect: nothing listens") || !r.Allowed {
		t.Errorf("record %+v", r)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(Config{}, "example.com")
	for _, c := range []struct{ request, want string }{
		{"CONNECT example.com HTTP/1.1\r\nHost: example.com\r\n\r\n", `400 CONNECT "example.com", want HOST:PORT`},
		{"CONNECT example.com:0 HTTP/1.1\r\nHost: x\r\n\r\n", "400 "},
		{"CONNECT example.com:+443 HTTP/1.1\r\nHost: x\r\n\r\n", "400 "},
		{"CONNECT example.com:22 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", "403 example.com:22: not among the hosts of the job's network; network: [example.com:22] would allow it"},
		{"CONNECT other.example:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", "403 other.example:443: not among the hosts of the job's network; network: [other.example] would allow it"},
		{"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "400 CONNECT with a body"},
		{"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 CONNECT with a body"},
		{"CONNECT [fe80::1%25eth0]:443 HTTP/1.1\r\nHost: x\r\n\r\n", "400 "},
		{"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", "400 Bad Request"},
		{"GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", "400 Bad Request"},
		{"GET ftp://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", "400 Bad Request"},
		{"GET http://example.com:/ HTTP/1.1\r\nHost: example.com\r\n\r\n", "400 Bad Request"},
		{"GET http://example.com\\@other.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n", "400 Bad Request"},
		{"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400 Bad Request"},
		{"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked, identity\r\n\r\n", "501 "},
		{"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding : chunked\r\n\r\n", "400 Bad Request"},
		{"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400 Bad Request"},
		{"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n", "400 Bad Request"},
	} {
		conn, br := p.raw(c.request)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Errorf("%q: %v", c.request, err)
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		if !strings.HasPrefix(resp.Status, c.want) {
			t.Errorf("%q: %s\n%s\nwant %s", c.request, resp.Status, text, c.want)
		}
		conn.Close()
	}
	if len(w.dialled) > 0 {
		t.Errorf("dialled %v", w.dialled)
	}
}

// TestFraming: what could be read in two ways leaves in one.
func TestFraming(t *testing.T) {
	w := newWorld(t)
	w.names["example.com"] = web
	requests := make(chan string, 2)
	w.serve(web+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		requests <- fmt.Sprintf("%s %s %s %s %v %d", r.Method, r.Host, r.URL, b, r.TransferEncoding, r.ContentLength)
	}))
	p := w.proxy(Config{}, "example.com")
	conn, br := p.raw("POST http://example.com/ HTTP/1.1\r\nHost: other.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" +
		"5\r\nhello\r\n0\r\n\r\nGET http://other.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
	io.Copy(io.Discard, br)
	conn.Close()
	if got := <-requests; got != "POST example.com / hello [chunked] -1" || len(requests) > 0 {
		t.Errorf("the host gets %q and %d more", got, len(requests))
	}
}

func TestBounds(t *testing.T) {
	w := newWorld(t)
	w.names["example.com"] = web
	w.serve(web+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, strings.Repeat("x", 1<<20))
	}))
	p := w.proxy(Config{MaxConnections: 1, MaxRecords: 1, MaxBytes: 10_000}, "example.com")

	// A tunnel is open; there is no room for another connection until it is closed.
	conn, _ := p.connect("example.com:80")
	resp, err := p.client(nil).Get("http://example.com/")
	if status, text := body(t, resp, err); status != 503 || !strings.Contains(text, "1 connections are open") {
		t.Errorf("beside another connection: %d %q", status, text)
	}
	conn.Close()
	for got := map[bool]int{}; got[true] == 0 || got[false] == 0; {
		got[(<-w.records).Allowed]++
	}

	resp, err = p.client(nil).Get("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || n > 64<<10 {
		t.Errorf("%d bytes came, %v", n, err)
	}
	resp.Body.Close()
	for range 2 {
		resp, err = p.client(nil).Get("http://other.example/")
		body(t, resp, err)
	}
	p.Close()
	a, b := <-w.records, <-w.records
	if !a.Allowed || a.Unrecorded != 1 || a.Down < 10_000 || a.Reason == "" || b.Allowed || b.Unrecorded != 2 || len(w.records) > 0 {
		t.Errorf("records %+v and %+v", a, b)
	}
}

// TestTime: connections that do nothing, or go on for ever, end. The network is one of
// pipes, so that time is virtual.
func TestTime(t *testing.T) {
	for _, c := range []struct {
		what, request string
		busy          bool // the host sends something each minute
		want          string
		after         time.Duration
	}{
		{"tunnel", "CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n", false, "idle for too long", 5 * time.Minute},
		{"tunnel", "CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n", true, "open for too long", 6 * time.Hour},
		{"request", "GET http://example.com/ HTTP/1.1\r\nHost: x\r\n\r\n", false, "idle for too long", 5 * time.Minute},
		{"request whose body never comes", "POST http://example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", false, "idle for too long", 5 * time.Minute},
	} {
		t.Run(fmt.Sprintf("%s, busy %v", c.what, c.busy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rules, _ := Parse([]string{"93.184.215.14"}, nil)
				records := make(chan Record, 1)
				host, far := net.Pipe()
				p := New(t.Context(), Config{Rules: rules, Record: func(r Record) { records <- r },
					Dial: func(context.Context, string, string) (net.Conn, error) { return far, nil }})
				l := pipes{conns: make(chan net.Conn, 1), done: make(chan struct{})}
				server := &http.Server{Handler: p}
				go server.Serve(l)
				client, end := net.Pipe()
				l.conns <- end
				go io.Copy(io.Discard, host)
				go io.Copy(io.Discard, client)
				var busy sync.WaitGroup
				if c.busy {
					busy.Go(func() {
						for {
							time.Sleep(time.Minute)
							if _, err := host.Write([]byte("x")); err != nil {
								return
							}
						}
					})
				}
				began := time.Now()
				io.WriteString(client, strings.ReplaceAll(c.request, "example.com", "93.184.215.14"))
				if r := <-records; r.Reason != c.want || !r.Allowed || time.Since(began) != c.after {
					t.Errorf("record %+v after %v, want %q after %v", r, time.Since(began), c.want, c.after)
				}
				client.Close()
				host.Close()
				busy.Wait()
				p.Close()
				server.Close()
			})
		})
	}
}

// pipes is a listener.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l pipes) Close() error   { close(l.done); return nil }
func (l pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestClose ends tunnels and waits for their records.
func TestClose(t *testing.T) {
	w := newWorld(t)
	w.names["example.com"] = web
	w.serve(web+":80", http.NotFoundHandler())
	p := w.proxy(Config{}, "example.com")
	_, br := p.connect("example.com:80")
	p.Close()
	if r := <-w.records; r.Reason != "the run's network has ended" {
		t.Errorf("record %+v", r)
	}
	if _, err := br.ReadByte(); err == nil {
		t.Error("the tunnel goes on")
	}
	resp, err := p.client(nil).Get("http://example.com/")
	if status, text := body(t, resp, err); status != 503 || !strings.Contains(text, "has ended") {
		t.Errorf("later: %d %q", status, text)
	}
	p.Close()
}

func TestAskAndGrant(t *testing.T) {
	w := newWorld(t)
	w.names = map[string]string{"asked.example": web, "private.example": "10.0.0.1", "granted.example": web}
	w.serve(web+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {}))
	asked := make(chan string, 10)
	p := w.proxy(Config{Ask: func(_ context.Context, host string, port uint16) bool {
		asked <- fmt.Sprintf("%s:%d", host, port)
		return host != "granted.example"
	}})
	get := func(url string, want int) {
		t.Helper()
		resp, err := p.client(nil).Get(url)
		if status, text := body(t, resp, err); status != want {
			t.Errorf("%s: %d %q, want %d", url, status, text, want)
		}
	}
	get("http://asked.example/", 200)
	get("http://asked.example/", 200) // the answer was for one connection
	get("http://private.example/", 403)
	get("http://granted.example/", 403)
	if len(asked) != 4 {
		t.Errorf("asked %d times, want 4", len(asked))
	}
	if err := p.Grant("gihub"); err == nil || !strings.Contains(err.Error(), "did you mean github?") {
		t.Errorf("a grant of what is none: %v", err)
	}
	if err := p.Grant("granted.example", "npm"); err != nil {
		t.Error(err)
	}
	get("http://granted.example/", 200)
	if len(asked) != 4 {
		t.Errorf("asked for what is granted")
	}
	if err := p.Grant("gihub", "other.example"); err == nil {
		t.Error("a grant of what is none, beside one that is")
	}
	get("http://granted.example/", 403) // it is replaced
	if len(asked) != 5 {
		t.Errorf("not asked for what is granted no more")
	}
}

// TestUpstream: through another proxy, one of ours.
func TestUpstream(t *testing.T) {
	w, far, ca := newWorld(t), newWorld(t), newAuthority(t)
	far.names["example.com"] = web
	far.serve(web+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, "plain", r.Header["Proxy-Authorization"])
	}))
	far.serveTLS(ca, web, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "tls") }), "example.com")
	upstream := far.proxy(Config{Key: "other"}, "example.com")
	w.at("203.0.113.1:3128", upstream.addr)
	via, _ := url.Parse(URL("203.0.113.1:3128", "other"))
	config := Config{Key: "key", Upstream: func(u *url.URL) (*url.URL, error) {
		if u.Hostname() == "direct.example" {
			return nil, nil
		}
		return via, nil
	}}
	w.names["direct.example"] = web
	w.serve(web+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "direct") }))
	p := w.proxy(config, "example.com", "nowhere.example", "metadata.google.internal", "direct.example", "localhost:80", "10.0.0.1:80")
	for _, c := range []struct {
		url    string
		status int
		want   string
	}{
		{"http://example.com/", 200, "plain[]"},
		{"https://example.com/", 200, "tls"},
		{"http://direct.example/", 200, "direct"},
		{"http://nowhere.example/", 403, "nowhere.example:80: not among"}, // the upstream's own answer
		{"http://metadata.google.internal/", 403, "a cloud's metadata"},
		{"http://localhost/", 403, "the loopback of the upstream proxy"},
		{"http://10.0.0.1/", 403, "10.0.0.1:80: not among"}, // named here, not there
		{"http://169.254.169.254/", 403, "169.254.169.254:80: not among"},
	} {
		resp, err := p.client(ca).Get(c.url)
		if status, text := body(t, resp, err); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %q, want %d %q", c.url, status, text, c.status, c.want)
		}
	}
	_, err := p.client(ca).Get("https://nowhere.example/")
	if err == nil || !strings.Contains(err.Error(), "connect through the upstream proxy: it answered") {
		t.Errorf("a tunnel that the upstream proxy refuses: %v", err)
	}
}

// FuzzRequest: whatever comes in, nothing is looked up or dialled but what is allowed.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"GET http://example.com/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n\x16\x03\x01",
		"POST http://example.com:80/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"GET http://user:pw@example.com@other/ HTTP/1.0\r\n\r\nCONNECT [::1]:80 HTTP/1.1\r\nHost:\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rules, _ := Parse([]string{"example.com"}, nil)
		p := New(t.Context(), Config{Rules: rules, Resolver: onlyExample{t}, Dial: func(_ context.Context, _, addr string) (net.Conn, error) {
			if addr != web+":80" && addr != web+":443" {
				t.Errorf("dialled %s", addr)
			}
			host, far := net.Pipe()
			host.Close()
			return far, nil
		}})
		l := pipes{conns: make(chan net.Conn, 1), done: make(chan struct{})}
		client, end := net.Pipe()
		gone := make(chan struct{})
		server := &http.Server{Handler: p, ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateHijacked {
				close(gone)
			}
		}}
		serving := make(chan struct{})
		go func() { server.Serve(l); close(serving) }()
		l.conns <- end
		read := make(chan struct{})
		go func() { io.Copy(io.Discard, client); close(read) }()
		client.Write(in)
		client.Close()
		<-gone
		p.Close()
		server.Close()
		<-read
		<-serving
	})
}

type onlyExample struct{ t *testing.T }

func (r onlyExample) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host != "example.com" {
		r.t.Errorf("looked up %q", host)
	}
	return []netip.Addr{netip.MustParseAddr(web)}, nil
}
