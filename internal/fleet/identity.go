package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Identity is what a scheduler's process proves who it is with: a key of its own, and a
// certificate that it has signed itself. Both are in memory only and end with the
// process, so there is nothing to keep secret, to renew, or to leave behind.
type Identity struct {
	certificate tls.Certificate
	fingerprint string
}

// NewIdentity makes one.
func NewIdentity() (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of this scheduler: %w", err)
	}
	// Who is at the other end is told by the fingerprint: the name is for people who look
	// at a connection, and the times for programs that insist on some.
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agentsched"}, NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(100, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of this scheduler: %w", err)
	}
	return &Identity{certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, fingerprint: fingerprintOf(der)}, nil
}

// Fingerprint is the SHA-256 of the certificate, 64 lower-case hexadecimal digits.
func (i *Identity) Fingerprint() string { return i.fingerprint }

func fingerprintOf(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// errNoCertificate: the other end has shown none.
var errNoCertificate = errors.New("the other scheduler has shown no certificate")

// shown returns the fingerprint of the certificate that the other end of a connection
// has shown, and whose key it has. "" if it has shown none.
func shown(state *tls.ConnectionState) string {
	if len(state.PeerCertificates) == 0 {
		return ""
	}
	return fingerprintOf(state.PeerCertificates[0].Raw)
}

// tls returns the settings of one end of a connection, which accepts the other end if
// accept does, by its fingerprint. Every connection is a handshake of its own.
func (i *Identity) tls(accept func(fingerprint string) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate}, NextProtos: []string{"http/1.1"},
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, // of names and authorities, of which there are none: VerifyConnection decides
		VerifyConnection: func(state tls.ConnectionState) error {
			print := shown(&state)
			if print == "" {
				return errNoCertificate
			}
			return accept(print)
		},
	}
}
