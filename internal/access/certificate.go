package access

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/statedir"
)

// certificateEvery is how long a new certificate may lie there unseen.
const certificateEvery = time.Second

// certificate is what the files hold, read again when they change. While they
// cannot be read, the last that could is served: a renewal replaces one file after
// the other.
type certificate struct {
	certFile, keyFile string
	log               zerolog.Logger

	mu       sync.Mutex // guards what follows
	looked   time.Time
	versions [2]string // of what was tried last
	have     *tls.Certificate
}

// openCertificate returns nil if neither file is named.
func openCertificate(certFile, keyFile string, log zerolog.Logger) (*certificate, error) {
	switch {
	case certFile == "" && keyFile == "":
		return nil, nil
	case certFile == "":
		return nil, fmt.Errorf("TLS has the key %s and no certificate: set api.tls.cert", keyFile)
	case keyFile == "":
		return nil, fmt.Errorf("TLS has the certificate %s and no key: set api.tls.key", certFile)
	}
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, looked: time.Now()}
	c.versions, _ = c.look()
	return c, c.load()
}

func (c *certificate) look() (now [2]string, err error) {
	var err1, err2 error
	now[0], err1 = statedir.FileVersion(c.certFile)
	now[1], err2 = statedir.FileVersion(c.keyFile)
	return now, errors.Join(err1, err2)
}

func (c *certificate) load() error {
	info, err := os.Stat(c.keyFile)
	if err != nil {
		return fmt.Errorf("TLS key: %w", err)
	}
	if err := keyIsPrivate(c.keyFile, info); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("TLS certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	c.have = &pair
	return nil
}

// keyIsPrivate refuses a key that others can read. The group may read what is
// root's and not this process' own: so do hosts share keys with their services.
func keyIsPrivate(path string, info fs.FileInfo) error {
	refuse, mend := fs.FileMode(0o077), "600"
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && sys.Uid == 0 && os.Geteuid() != 0 {
		refuse, mend = 0o037, "640"
	}
	if mode := info.Mode().Perm(); mode&refuse != 0 {
		return fmt.Errorf("TLS key %s is open to other users (mode %04o); run: chmod %s %s", path, mode, mend, path)
	}
	return nil
}

// get is for tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < certificateEvery {
		return c.have, nil
	}
	c.looked = time.Now()
	now, err := c.look()
	if err != nil || now == c.versions {
		return c.have, nil
	}
	c.versions = now
	if err := c.load(); err != nil {
		c.log.Warn().Err(err).Msg("the TLS certificate has changed and cannot be read; the one before is served on")
	}
	return c.have, nil
}
