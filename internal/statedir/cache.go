package statedir

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Caches returns the folder of the tenants' caches.
func (d *Dir) Caches() string { return d.join("cache") }

// Cache returns the folder in which the runs of a tenant keep what they download and
// build, so that the next one need not. No run of another tenant sees it. MakeCache
// makes it.
func (d *Dir) Cache(tenant job.Tenant) string {
	return filepath.Join(d.Caches(), cacheName(tenant))
}

// plainName is a name that every file system takes and tells from all others: names that
// differ in case alone are one to some.
var plainName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// cacheName returns the name of a tenant's folder. Whatever the tenant is called, it is
// no other's and leads nowhere else.
func cacheName(tenant job.Tenant) string {
	if plainName.MatchString(string(tenant)) {
		return string(tenant)
	}
	sum := sha256.Sum256([]byte(tenant))
	return "+" + hex.EncodeToString(sum[:16])
}

// MakeCache makes the folder of a tenant's cache, for its owner alone, and returns it.
func (d *Dir) MakeCache(tenant job.Tenant) (string, error) {
	path := d.Cache(tenant)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make the cache of tenant %q: %w", tenant, err)
	}
	return path, nil
}

// removedCache begins the names of caches that are being removed.
const removedCache = "."

// RemoveCaches discards the caches of all tenants and returns how many there were. A run
// that begins meanwhile has a new one; none that uses one may be alive. What an earlier
// call did not come to is removed too.
func (d *Dir) RemoveCaches() (removed int, err error) {
	root, err := os.OpenRoot(d.Caches())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("discard the caches of tenants: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	errs := []error{err}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, removedCache) {
			removed++
		}
		if err := discard(root, name); err != nil {
			errs = append(errs, fmt.Errorf("discard the cache %s: %w", filepath.Join(d.Caches(), name), err))
		}
	}
	return removed, errors.Join(errs...)
}

// discard removes a folder. It may hold folders that not even their owner may write, as
// the cache of Go's modules does, and whatever else runs have made.
func discard(root *os.Root, name string) error {
	if !strings.HasPrefix(name, removedCache) {
		if err := root.Chmod(name, 0o700); err != nil {
			return err
		}
		aside := removedCache + name + "-" + rand.Text()
		if err := root.Rename(name, aside); err != nil {
			return err
		}
		name = aside
	}
	// What could not be opened shows when it is removed.
	_ = fs.WalkDir(root.FS(), name, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	return root.RemoveAll(name)
}
