package ca

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

const (
	// authorityName is the name of the authority's own files.
	authorityName = "ca"
	// DefaultLife and DefaultAuthorityLife are how long certificates are valid.
	DefaultLife          = 365 * 24 * time.Hour
	DefaultAuthorityLife = 10 * DefaultLife
	// skew is how long before now a certificate is valid: clocks of hosts differ.
	skew = time.Hour
)

// ErrNone: there is no authority in the folder.
var ErrNone = errors.New("there is no certificate authority")

// Authority issues certificates into its folder. It is not for several processes at once.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Certificate is a certificate in the folder of an authority.
type Certificate struct {
	Name      string    `json:"name"` // of its files
	CertFile  string    `json:"cert"`
	KeyFile   string    `json:"key"`
	Hosts     []string  `json:"hosts,omitempty"` // names and addresses; the authority's has none
	NotAfter  time.Time `json:"not_after"`
	Authority bool      `json:"authority,omitempty"`
	// Foreign: the authority in the folder has not signed it.
	Foreign bool `json:"foreign,omitempty"`
}

// Init makes an authority in the folder dir, which is made if it is not there. One that is there is left as it is, and
// the error wraps fs.ErrExist: what it has signed would be trusted no more.
func Init(dir string, life time.Duration, now time.Time) (*Certificate, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(certPath(dir, authorityName)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", certPath(dir, authorityName), cmp.Or(err, fs.ErrExist))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "agentsched CA " + rand.Text()[:8]}, // authorities are told apart by their names
		NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	return write(dir, authorityName, cert, cert, key, key)
}

// Open returns the authority in dir. The error wraps ErrNone if there is none.
func Open(dir string) (*Authority, error) {
	cert, err := readCertificate(certPath(dir, authorityName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNone)
	}
	if err != nil {
		return nil, err
	}
	path := keyPath(dir, authorityName)
	key, err := readKey(path)
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of %s: put the one back that was made with it, or make another authority in another folder", path, certPath(dir, authorityName))
	}
	return &Authority{dir, cert, key}, nil
}

// Issue makes a key and a certificate for a server that is called by hosts, names of DNS and IP addresses, in place of
// what is there under the name. Without hosts they are those of the certificate that is there.
func (a *Authority) Issue(name string, hosts []string, life time.Duration, now time.Time) (*Certificate, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		before, err := readCertificate(certPath(a.dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("certificate %s is new and names no host: give the names and addresses that clients call it by", name)
		case err != nil:
			return nil, err
		}
		hosts = hostsOf(before)
	}
	cert := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if err := CheckHost(host); err != nil {
			return nil, err
		}
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, strings.ToLower(host))
		}
	}
	if cert.NotAfter.After(a.cert.NotAfter) {
		return nil, fmt.Errorf("certificate %s would be valid until %s, longer than the authority, which ends on %s: ask for a shorter time, or make another authority in another folder", name, day(cert.NotAfter), day(a.cert.NotAfter))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return write(a.dir, name, cert, a.cert, key, a.key)
}

// List returns the certificates in dir: the authority's, and the others by name.
func List(dir string) ([]Certificate, error) {
	authority, err := readCertificate(certPath(dir, authorityName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNone)
	}
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(certPath(escape(dir), "*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	list := []Certificate{*describe(dir, authorityName, authority)}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".crt")
		if CheckName(name) != nil {
			continue
		}
		cert, err := readCertificate(file)
		if err != nil {
			return nil, err
		}
		c := describe(dir, name, cert)
		c.Foreign = cert.CheckSignatureFrom(authority) != nil
		list = append(list, *c)
	}
	return list, nil
}

// escape returns a path as a pattern of filepath.Glob that fits it alone.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// write signs a certificate and writes it with its key. A server that reads one between the two goes on with what it has.
func write(dir, name string, cert, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate %s: %w", name, err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := statedir.WriteFile(keyPath(dir, name), encode(keyType, secret)); err != nil {
		return nil, err
	}
	if err := statedir.WriteFile(certPath(dir, name), encode(certType, der)); err != nil {
		return nil, err
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return describe(dir, name, made), nil
}

func describe(dir, name string, cert *x509.Certificate) *Certificate {
	return &Certificate{Name: name, CertFile: certPath(dir, name), KeyFile: keyPath(dir, name), Hosts: hostsOf(cert), NotAfter: cert.NotAfter, Authority: cert.IsCA}
}

func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Types of PEM blocks.
const (
	certType = "CERTIFICATE"
	keyType  = "PRIVATE KEY"
)

func certPath(dir, name string) string { return filepath.Join(dir, name+".crt") }
func keyPath(dir, name string) string  { return filepath.Join(dir, name+".key") }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// readCertificate reads the first certificate of a file.
func readCertificate(path string) (*x509.Certificate, error) {
	der, err := readBlock(path, certType)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cert, nil
}

// readKey reads a key that nobody else can read.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s is open to other users (mode %04o), who could pose as any scheduler; run: chmod 600 %s", path, mode, path)
	}
	der, err := readBlock(path, keyType)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p256, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of type %T, want one of ECDSA as `scheduler ca init` makes it", path, key)
	}
	return p256, nil
}

func readBlock(path, kind string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s holds no PEM block %s", path, kind)
	}
	return block.Bytes, nil
}
