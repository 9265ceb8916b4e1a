package trigger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// minSecret is in bytes: one that can be guessed is none.
	minSecret = 16
	maxSecret = 4 << 10
)

// secret returns the key of a webhook. Its errors never repeat it.
func (r *Runner) secret(w *Webhook) ([]byte, error) {
	var key []byte
	from := "variable " + w.SecretEnv
	if w.SecretEnv != "" {
		key = []byte(r.cfg.Getenv(w.SecretEnv))
	} else {
		from = "file " + w.SecretFile
		var err error
		if key, err = readSecret(w.SecretFile); err != nil {
			return nil, fmt.Errorf("read the secret of webhook %s: %w", w.Path, err)
		}
	}
	if len(key) < minSecret {
		return nil, fmt.Errorf("read the secret of webhook %s: %s has %d bytes, want %d or more", w.Path, from, len(key), minSecret)
	}
	return key, nil
}

// readSecret reads a file that nobody but its owner may read, without the line
// end that editors append.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened: a pipe would wait
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		return nil, fmt.Errorf("%s has mode %04o: others may read it; run chmod 600 %s", path, info.Mode().Perm(), path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSecret {
		return nil, errors.New("it is too long")
	}
	return bytes.TrimRight(data, "\r\n"), nil
}
