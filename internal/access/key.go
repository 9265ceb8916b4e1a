package access

import (
	"fmt"
	"strings"
	"sync"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/statedir"
)

// Key is the secret in the state directory that requests at the socket send. It
// keeps out who reaches the socket and not the directory, such as a program in a
// container or a sandbox. It is safe for concurrent use.
//
// The file holds the line of the header, so that `curl -H @FILE` sends it. One that
// is gone, damaged or open to other users is replaced by a new key.
type Key struct {
	path string

	mu      sync.Mutex // guards what follows
	version string     // of what was read
	hash    digest
}

// OpenKey returns the key in the file at path, and makes it if need be.
func OpenKey(path string) (*Key, error) {
	k := &Key{path: path}
	return k, k.refresh()
}

// refresh reads the file if it has changed. k.mu is held, or nobody else knows k.
func (k *Key) refresh() error {
	now, err := statedir.FileVersion(k.path)
	if err == nil && now == k.version && now != "" {
		return nil
	}
	text, now, err := statedir.ReadPrivate(k.path)
	secret, ok := client.ParseKey(string(text))
	if err != nil || !ok {
		secret = newSecret()
		if err := statedir.WriteFile(k.path, []byte(client.KeyHeader+": "+secret+"\n")); err != nil {
			return fmt.Errorf("make the key of the socket: write %s: %w", k.path, err)
		}
		if now, err = statedir.FileVersion(k.path); err != nil {
			return fmt.Errorf("make the key of the socket: %w", err)
		}
	}
	k.version, k.hash = now, digestOf(secret)
	return nil
}

// opens reports whether what was sent is the key.
func (k *Key) opens(sent string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refresh() != nil {
		return false // the disk is full, say: nobody knows the key
	}
	return digestOf(strings.TrimSpace(sent)) == k.hash
}
