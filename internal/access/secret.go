package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// digest is the SHA-256 of a secret of 256 random bits. Such a secret cannot be
// guessed however fast a guess is, so that a slow hash, as passwords need, would
// only make requests slow.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// MarshalText writes it in hexadecimal.
func (d digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(d) {
		return fmt.Errorf("a SHA-256 has %d hexadecimal digits, not %d", hex.EncodedLen(len(d)), len(text))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// secretLength is how long newSecret's texts are.
const secretLength = 43

// newSecret returns 32 random bytes as base64url.
func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b) //nolint:errcheck // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}
