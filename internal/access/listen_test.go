package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/statedir"
)

// writePair writes a certificate for 127.0.0.1 with this name, and its key.
func writePair(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// Beyond loopback nothing listens without TLS and a token that lets somebody in, and
// the error says what is missing.
func TestWhereItListens(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "x")
	open := filepath.Join(dir, "open.pem")
	text, err := os.ReadFile(key)
	if err == nil {
		err = os.WriteFile(open, text, 0o600)
	}
	if err = errors.Join(err, os.Chmod(open, 0o644)); err != nil {
		t.Fatal(err)
	}
	none, some := openTokens(t, filepath.Join(t.TempDir(), statedir.TokensFile)), openTokens(t, filepath.Join(t.TempDir(), statedir.TokensFile))
	create(t, some, "ci", Read, 0)
	expired := openTokens(t, filepath.Join(t.TempDir(), statedir.TokensFile))
	create(t, expired, "old", Read, 1)
	const needsTLS, needsToken = "api.tls.cert", "scheduler token create"
	for _, tc := range []struct {
		name   string
		c      Config
		want   []string // in the error; none: it listens
		absent string   // of the error
	}{
		{"loopback", Config{Addr: "127.0.0.1:0"}, nil, ""},
		{"all of 127/8", Config{Addr: "127.8.8.8:0"}, nil, ""},
		{"by name", Config{Addr: "localhost:0", Tokens: none}, nil, ""},
		{"with TLS", Config{Addr: "127.0.0.1:0", CertFile: cert, KeyFile: key}, nil, ""},
		{"beyond, with both", Config{Addr: "0.0.0.0:0", CertFile: cert, KeyFile: key, Tokens: some}, nil, ""},
		{"beyond, bare", Config{Addr: "0.0.0.0:0", Tokens: none}, []string{needsTLS, needsToken}, ""},
		{"no host", Config{Addr: ":0", Tokens: none}, []string{needsTLS, needsToken}, ""},
		{"no host, without tokens", Config{Addr: ":0"}, []string{needsTLS, needsToken}, ""},
		{"all of IPv6", Config{Addr: "[::]:0"}, []string{needsTLS, needsToken}, ""},
		{"mapped", Config{Addr: "[::ffff:192.0.2.1]:0"}, []string{needsTLS, needsToken}, ""},
		{"an address", Config{Addr: "192.0.2.1:7433", Tokens: some}, []string{needsTLS}, needsToken},
		{"an address, TLS only", Config{Addr: "192.0.2.1:7433", CertFile: cert, KeyFile: key, Tokens: none}, []string{needsToken}, needsTLS},
		{"an expired token", Config{Addr: "192.0.2.1:7433", CertFile: cert, KeyFile: key, Tokens: expired}, []string{needsToken}, needsTLS},
		{"no port", Config{Addr: "127.0.0.1"}, []string{"HOST:PORT"}, ""},
		{"a bad port", Config{Addr: "127.0.0.1:99999"}, []string{"HOST:PORT"}, ""},
		{"nothing", Config{}, []string{"HOST:PORT"}, ""},
		{"a key alone", Config{Addr: "127.0.0.1:0", KeyFile: key}, []string{needsTLS}, ""},
		{"a certificate alone", Config{Addr: "127.0.0.1:0", CertFile: cert}, []string{"api.tls.key"}, ""},
		{"an open key", Config{Addr: "127.0.0.1:0", CertFile: cert, KeyFile: open}, []string{"chmod", open}, ""},
		{"no such key", Config{Addr: "127.0.0.1:0", CertFile: cert, KeyFile: key + "x"}, []string{key + "x"}, ""},
		{"no certificate", Config{Addr: "127.0.0.1:0", CertFile: key, KeyFile: key}, []string{key}, ""},
	} {
		l, err := Listen(tc.c)
		if l != nil {
			if l.TLS() != (tc.c.CertFile != "") {
				t.Errorf("%s: TLS is %t", tc.name, l.TLS())
			}
			l.Close()
		}
		if (err == nil) != (len(tc.want) == 0) {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) || tc.absent != "" && strings.Contains(err.Error(), tc.absent) {
				t.Errorf("%s: %q, want %q and not %q", tc.name, err, want, tc.absent)
			}
		}
	}
}

// A name counts as loopback if all that it stands for is.
func TestNamesOfLoopback(t *testing.T) {
	for _, tc := range []struct {
		host, addrs, want string // "" is refused
	}{
		{"localhost", "127.0.0.1", "127.0.0.1"}, {"localhost", "::1 127.0.0.1", "127.0.0.1"}, {"localhost", "::1", "::1"}, {"here", "::ffff:127.0.0.1", "127.0.0.1"},
		{"localhost", "127.0.0.1 192.0.2.1", ""}, {"LocalHost.", "192.0.2.1", ""}, {"here", "127.0.0.1 192.0.2.1", "192.0.2.1"}, {"here", "2001:db8::1 192.0.2.1", "192.0.2.1"},
	} {
		var addrs []netip.Addr
		for _, a := range strings.Fields(tc.addrs) {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		got, err := choose(tc.host, addrs)
		if (err == nil) != (tc.want != "") || err == nil && got.String() != tc.want {
			t.Errorf("%s as %s: %s, %v", tc.host, tc.addrs, got, err)
		}
	}
}

// A real server over TLS: HTTP/2 for who trusts the certificate, nothing older than
// TLS 1.2, and the socket can be handed over.
func TestTLS(t *testing.T) {
	f := newFixture(t, Settings{})
	cert, key := writePair(t, t.TempDir(), "one")
	l, err := Listen(Config{Addr: "127.0.0.1:0", CertFile: cert, KeyFile: key, Tokens: f.tokens})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var handOver *os.File
	err = raw.Control(func(fd uintptr) {
		dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			handOver = os.NewFile(uintptr(dup), "listener")
		}
	})
	if err != nil || handOver == nil {
		t.Fatal("the socket cannot be had", err)
	}
	defer handOver.Close()
	serve(t, l, &http.Server{Handler: f.handler, ErrorLog: log.New(io.Discard, "", 0)})
	ask := func(cfg *tls.Config) (*http.Response, error) {
		tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		r, err := http.NewRequest("GET", "https://"+l.Addr().String()+"/v1/me", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+f.text[Read])
		resp, err := (&http.Client{Transport: tr}).Do(r)
		if err == nil {
			resp.Body.Close()
		}
		return resp, err
	}
	pool := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	resp, err := ask(&tls.Config{RootCAs: pool})
	if err != nil || resp.StatusCode != 200 || resp.ProtoMajor != 2 || resp.TLS.Version != tls.VersionTLS13 {
		t.Errorf("%+v, %v", resp, err)
	}
	for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true} {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: version})
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if c != nil {
			c.Close()
		}
	}
	if _, err := ask(&tls.Config{}); err == nil {
		t.Error("a certificate that nobody trusts was taken")
	}
	inherited, err := net.FileListener(handOver)
	if err != nil {
		t.Fatal(err)
	}
	next, err := Listen(Config{Addr: "ignored", CertFile: cert, KeyFile: key, Tokens: f.tokens, Inherited: inherited})
	if err != nil || next.Addr().String() != l.Addr().String() || !next.TLS() {
		t.Fatalf("handed over: %v, %v", next, err)
	}
	next.Close()
}

// A listener that was handed over is judged as any other, and not left open.
func TestInheritedListenerIsJudged(t *testing.T) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Config{Inherited: tcp}); err == nil || !strings.Contains(err.Error(), "beyond loopback") {
		t.Errorf("it listens: %v", err)
	}
	if _, err := tcp.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it is open: %v", err)
	}
	inside, err := daemon.ListenSocket(filepath.Join(t.TempDir(), "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Config{Addr: "127.0.0.1:0", Inherited: inside}); err == nil || !strings.Contains(err.Error(), "want tcp") {
		t.Errorf("a unix socket: %v", err)
	}
}

// A renewed certificate is served without a restart; while it is half written, or
// open to others, the one before is.
func TestCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		certFile, keyFile := writePair(t, dir, "one")
		log := new(strings.Builder)
		c, err := openCertificate(certFile, keyFile, zerolog.New(log))
		if err != nil {
			t.Fatal(err)
		}
		served := func() string {
			t.Helper()
			ours, theirs := net.Pipe()
			defer ours.Close()
			defer theirs.Close()
			server := tls.Server(ours, &tls.Config{GetCertificate: c.get})
			done := make(chan error, 1)
			go func() { done <- server.Handshake() }()
			conn := tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
			if err := errors.Join(conn.HandshakeContext(context.Background()), <-done); err != nil {
				t.Fatal(err)
			}
			return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
		}
		if got := served(); got != "one" {
			t.Errorf("first it is %q", got)
		}
		oldKey, err := os.ReadFile(keyFile)
		if err != nil {
			t.Fatal(err)
		}
		writePair(t, dir, "two")
		newKey, err := os.ReadFile(keyFile)
		if err == nil {
			err = os.WriteFile(keyFile, oldKey, 0o600)
		}
		// Of the same size and of the same tick of the host's clock it would be the same file.
		later := time.Now().Add(time.Hour)
		if err := errors.Join(err, os.Chtimes(certFile, later, later)); err != nil {
			t.Fatal(err)
		}
		if got := served(); got != "one" {
			t.Errorf("it is looked at each time: %q", got)
		}
		time.Sleep(certificateEvery)
		if got := served(); got != "one" || !strings.Contains(log.String(), certFile) {
			t.Errorf("half written it is %q, told %q", got, log)
		}
		if err := errors.Join(os.WriteFile(keyFile, newKey, 0o600), os.Chmod(keyFile, 0o644)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(certificateEvery)
		if got := served(); got != "one" || !strings.Contains(log.String(), "chmod") {
			t.Errorf("with an open key it is %q, told %q", got, log)
		}
		if err := os.Chmod(keyFile, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(certificateEvery)
		if got := served(); got != "two" {
			t.Errorf("renewed it is %q", got)
		}
	})
}
