package ca_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/ca"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// authority makes one in a folder of the test's.
func authority(t *testing.T) (*ca.Authority, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state", "ca[1]*")
	if _, err := ca.Init(dir, ca.DefaultAuthorityLife, now); err != nil {
		t.Fatal(err)
	}
	a, err := ca.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a, dir
}

// handshake connects a client that trusts the authority to a server with a certificate of it.
func handshake(t *testing.T, dir string, c *ca.Certificate, host string, at time.Time) error {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("ca.crt holds no certificate:\n%s", pem)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.(*tls.Conn).Handshake() //nolint:errcheck // the client tells
		conn.Close()
	}()
	defer func() {
		l.Close()
		<-ended
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool, ServerName: host, Time: func() time.Time { return at }})
	if err != nil {
		return err
	}
	return conn.Close()
}

// A client that trusts the authority talks to a server with a certificate of it by each of its hosts, as long as it is
// valid, and to nobody else.
func TestCertificatesServe(t *testing.T) {
	a, dir := authority(t)
	c, err := a.Issue("a", []string{"A.example.com", "10.0.0.1", "::1"}, ca.DefaultLife, now)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a.example.com", "10.0.0.1", "::1"}; !slices.Equal(c.Hosts, want) || !c.NotAfter.Equal(now.Add(ca.DefaultLife)) {
		t.Errorf("issued %+v, want the hosts %q", c, want)
	}
	for _, host := range []string{"a.example.com", "10.0.0.1", "::1"} {
		if err := handshake(t, dir, c, host, now); err != nil {
			t.Errorf("as %s: %v", host, err)
		}
	}
	if err := handshake(t, dir, c, "a.example.com", now.Add(-30*time.Minute)); err != nil {
		t.Errorf("by a clock that is slow: %v", err)
	}
	var name x509.HostnameError
	if err := handshake(t, dir, c, "b.example.com", now); !errors.As(err, &name) {
		t.Errorf("as another host: %v", err)
	}
	var invalid x509.CertificateInvalidError
	if err := handshake(t, dir, c, "a.example.com", now.Add(ca.DefaultLife+time.Second)); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("after its end: %v", err)
	}
	_, other := authority(t)
	var unknown x509.UnknownAuthorityError
	if err := handshake(t, other, c, "a.example.com", now); !errors.As(err, &unknown) {
		t.Errorf("by a client that trusts another authority: %v", err)
	}
}

// What is issued cannot issue in turn, and only its owner reads any of the files.
func TestFiles(t *testing.T) {
	a, dir := authority(t)
	c, err := a.Issue("a", []string{"localhost"}, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if x := pair.Leaf; x.IsCA || x.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(x.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("certificate for %v %v, authority %v; want one of a server alone", x.KeyUsage, x.ExtKeyUsage, x.IsCA)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 4 {
		t.Fatalf("%d files, %v; want those of the authority and of a", len(files), err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: mode %v, %v", info.Mode(), err)
	}
}

// Issuing again renews a certificate for the same hosts, with another key.
func TestRenewal(t *testing.T) {
	a, dir := authority(t)
	first, err := a.Issue("a", []string{"a.example.com", "10.0.0.1"}, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(first.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	later := now.Add(2 * time.Hour)
	second, err := a.Issue("a", nil, ca.DefaultLife, later)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(second.Hosts, first.Hosts) || second.CertFile != first.CertFile {
		t.Errorf("renewed as %+v, want as %+v", second, first)
	}
	if again, err := os.ReadFile(second.KeyFile); err != nil || string(again) == string(key) {
		t.Errorf("the key is the same one as before: %v", err)
	}
	if err := handshake(t, dir, second, "10.0.0.1", later); err != nil {
		t.Error(err)
	}
	list, err := ca.List(dir)
	if err != nil || len(list) != 2 || !list[0].Authority || list[1].Name != "a" || !list[1].NotAfter.Equal(second.NotAfter) || list[1].Foreign {
		t.Errorf("listed %+v, %v", list, err)
	}
}

// A certificate of another authority is told apart in the list.
func TestForeign(t *testing.T) {
	_, dir := authority(t)
	b, other := authority(t)
	if _, err := b.Issue("b", []string{"b"}, time.Hour, now); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(other, "b.crt"), filepath.Join(dir, "b.crt")); err != nil {
		t.Fatal(err)
	}
	if list, err := ca.List(dir); err != nil || len(list) != 2 || !list[1].Foreign {
		t.Errorf("listed %+v, %v", list, err)
	}
}

// What is refused says why, and changes nothing.
func TestRefused(t *testing.T) {
	a, dir := authority(t)
	for _, x := range []struct {
		name  string
		hosts []string
		life  time.Duration
		want  string
	}{
		{"ca", []string{"a"}, time.Hour, "the authority's own"},
		{"../a", []string{"a"}, time.Hour, "letters, digits"},
		{"", []string{"a"}, time.Hour, "letters, digits"},
		{"a", nil, time.Hour, "names no host"},
		{"a", []string{"https://a.example.com"}, time.Hour, `host "https://a.example.com"`},
		{"a", []string{"*.example.com"}, time.Hour, `host "*.example.com"`},
		{"a", []string{"0.0.0.0"}, time.Hour, `host "0.0.0.0"`},
		{"a", []string{"fe80::1%eth0"}, time.Hour, `host "fe80::1%eth0"`},
		{"a", []string{""}, time.Hour, `host ""`},
		{"a", []string{"a"}, 2 * ca.DefaultAuthorityLife, "longer than the authority, which ends on 2036-02-27"},
	} {
		if _, err := a.Issue(x.name, x.hosts, x.life, now); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("issue %q for %q: %v, want %s", x.name, x.hosts, err, x.want)
		}
	}
	if _, err := ca.Init(dir, time.Hour, now); !errors.Is(err, fs.ErrExist) {
		t.Errorf("init again: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%d files, %v", len(files), err)
	}
	if _, err := ca.Open(t.TempDir()); !errors.Is(err, ca.ErrNone) {
		t.Errorf("open an empty folder: %v", err)
	}
	if _, err := ca.List(t.TempDir()); !errors.Is(err, ca.ErrNone) {
		t.Errorf("list an empty folder: %v", err)
	}
	key := filepath.Join(dir, "ca.key")
	if err := os.Chmod(key, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Open(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("with a key that others read: %v", err)
	}
	_, other := authority(t)
	if err := os.Rename(filepath.Join(other, "ca.key"), key); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Open(dir); err == nil || !strings.Contains(err.Error(), "is not the key of") {
		t.Errorf("with the key of another authority: %v", err)
	}
}
