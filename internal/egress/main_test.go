package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the network as the proxy of a test sees it: names with their addresses,
// and servers at those, which in truth listen on loopback.
type world struct {
	t *testing.T

	mu      sync.Mutex
	names   map[string]string // the addresses of a name, comma between them
	servers map[string]string // where what listens at ADDRESS:PORT is in truth
	asked   []string          // names that were looked up
	dialled []string
	records chan Record
}

func newWorld(t *testing.T) *world {
	return &world{t: t, names: map[string]string{}, servers: map[string]string{}, records: make(chan Record, 1000)}
}

func (w *world) LookupNetIP(_ context.Context, _, host string) (all []netip.Addr, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, host)
	texts, ok := w.names[host]
	if !ok {
		w.t.Errorf("%s was looked up", host)
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	for text := range strings.SplitSeq(texts, ",") {
		all = append(all, netip.MustParseAddr(text))
	}
	return all, nil
}

func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, addr)
	at, ok := w.servers[addr]
	w.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("nothing listens at %s", addr)
	}
	return new(net.Dialer).DialContext(ctx, network, at)
}

// serve puts a server at ADDRESS:PORT.
func (w *world) serve(at string, h http.Handler) {
	server := httptest.NewServer(h)
	w.t.Cleanup(server.Close)
	w.at(at, server.Listener.Addr().String())
}

func (w *world) at(at, truth string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[at] = truth
}

// proxy starts a proxy of the world. What the test has left open of it ends with the test.
func (w *world) proxy(c Config, entries ...string) *running {
	w.t.Helper()
	rules, err := Parse(entries, Presets())
	if err != nil {
		w.t.Fatal(err)
	}
	c.Rules, c.Resolver, c.Dial = rules, w, w.dial
	c.Record = func(r Record) { w.records <- r }
	p := New(w.t.Context(), c)
	server := httptest.NewServer(p)
	w.t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	return &running{Proxy: p, t: w.t, addr: server.Listener.Addr().String(), url: URL(server.Listener.Addr().String(), c.Key)}
}

type running struct {
	*Proxy
	t         *testing.T
	addr, url string
}

// client returns one that uses the proxy for everything.
func (p *running) client(ca *authority) *http.Client {
	u, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	tr := &http.Transport{Proxy: http.ProxyURL(u)}
	if ca != nil {
		tr.TLSClientConfig = &tls.Config{RootCAs: ca.pool}
	}
	p.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// raw sends text to the proxy and returns the connection and a reader of it.
func (p *running) raw(text string) (net.Conn, *bufio.Reader) {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte(text)); err != nil {
		p.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// connect opens a tunnel.
func (p *running) connect(to string) (net.Conn, *bufio.Reader) {
	p.t.Helper()
	conn, br := p.raw("CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n")
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("CONNECT %s: %v, %v", to, resp, err)
	}
	return conn, br
}

// authority is a CA of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool(), pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	a.pool.AddCert(cert)
	return a
}

// serveTLS puts an https server of these names at ADDRESS:443.
func (w *world) serveTLS(ca *authority, at string, h http.Handler, names ...string) {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		w.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients go as they like
	server.EnableHTTP2 = true
	server.StartTLS()
	w.t.Cleanup(server.Close)
	w.at(at+":443", server.Listener.Addr().String())
}

// web is an address that is public, and no server's of a test.
const web = "93.184.215.14"
