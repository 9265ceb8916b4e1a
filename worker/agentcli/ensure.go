package agentcli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Installed maps each kind to the path of its executable, absolute if the
// folder's is.
type Installed map[job.WorkerKind]string

// heartbeat is how often is told that npm still works.
const heartbeat = 2 * time.Second

// CacheDir returns the folder that is used when the user names none:
// $XDG_CACHE_HOME/agentsched/workers, or the system's cache folder for it.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for worker programs: %w", err)
	}
	return filepath.Join(base, "agentsched", "workers"), nil
}

// Find returns those of kinds that are installed in dir at their pinned
// versions. It starts nothing.
func (c Catalog) Find(dir string, kinds []job.WorkerKind) Installed {
	found := Installed{}
	for _, kind := range kinds {
		if p, err := c.of(kind); err == nil && p.complete(filepath.Join(dir, p.folder())) {
			found[kind] = p.executable(filepath.Join(dir, p.folder()))
		}
	}
	return found
}

// Ensure installs what of kinds is not in dir yet and returns the executables
// of all of them, as absolute paths. Without an error every kind is there. An install
// is there whole or not at all: npm works in a temporary folder beside it, which is
// renamed once its program has told its version. Processes that want the same take turns.
//
// Progress is given one line at a time: what begins, how many bytes are there, what is
// done. It is called from one goroutine at a time.
func (c Catalog) Ensure(ctx context.Context, dir string, kinds []job.WorkerKind, progress func(line string)) (Installed, error) {
	return c.ensure(ctx, dir, kinds, progress, heartbeat)
}

func (c Catalog) ensure(ctx context.Context, dir string, kinds []job.WorkerKind, progress func(line string), every time.Duration) (Installed, error) {
	// npm and the programs run in folders of their own.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("install worker programs: %w", err)
	}
	missing, err := c.missingOf(dir, kinds)
	if err != nil || len(missing) == 0 {
		return c.Find(dir, kinds), err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("install worker programs: %w", err)
	}
	lock, err := lockInstalls(ctx, dir, progress)
	if err != nil {
		return nil, fmt.Errorf("install worker programs into %s: %w", dir, err)
	}
	defer unlockInstalls(lock)

	// Whoever had the lock may have done the work.
	if missing, err = c.missingOf(dir, kinds); err != nil || len(missing) == 0 {
		return c.Find(dir, kinds), err
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return nil, fmt.Errorf("install %s: npm is not on PATH: install Node.js 20 or newer, which brings npm (from your system's packages or the Node.js project), "+
			"or install the programs yourself", pinNames(missing))
	}
	in := installer{dir: dir, npm: npm, lock: lock, progress: progress, every: every, said: &sync.Mutex{}}
	in.sweep()
	if err := in.all(ctx, missing); err != nil {
		return nil, err
	}
	return c.Find(dir, kinds), nil
}

// missingOf returns the pins of those kinds that are not complete in dir, each
// once.
func (c Catalog) missingOf(dir string, kinds []job.WorkerKind) ([]pin, error) {
	var missing []pin
	seen := map[job.WorkerKind]bool{}
	for _, kind := range kinds {
		p, err := c.of(kind)
		if err != nil {
			return nil, err
		}
		if !seen[kind] && !p.complete(filepath.Join(dir, p.folder())) {
			missing = append(missing, p)
		}
		seen[kind] = true
	}
	return missing, nil
}

// complete reports whether the install is there. Since it appears by a rename
// after its program ran, a look at the executable is enough; the look finds
// what was damaged by hand or by a disk that lost its last writes.
func (p pin) complete(install string) bool {
	info, err := os.Stat(p.executable(install))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && info.Size() > 0
}

func pinNames(pins []pin) string {
	var list []string
	for _, p := range pins {
		list = append(list, string(p.kind)+" "+p.Version)
	}
	return strings.Join(list, ", ")
}
