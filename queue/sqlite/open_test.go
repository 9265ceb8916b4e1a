package sqlite_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"time"

	_ "modernc.org/sqlite" // to look into the store behind its back

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

// written returns the path of a closed store with n entries.
func written(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queue.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var entries []queue.Entry
	for i := range n {
		entries = append(entries, named(fmt.Sprintf("j%d", i)))
	}
	if err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, entries); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDamaged opens what is no store: the error says so and names the path,
// and the file stays as it is.
func TestDamaged(t *testing.T) {
	change := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, change(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, damage := range map[string]func(*testing.T, string){
		"a text":        change(func([]byte) []byte { return []byte(strings.Repeat("not a database\n", 100)) }),
		"a short text":  change(func([]byte) []byte { return []byte("x") }),
		"half of it":    change(func(b []byte) []byte { return b[:len(b)/2/4096*4096] }),
		"a cut page":    change(func(b []byte) []byte { return b[:len(b)-1000] }),
		"a zeroed page": change(func(b []byte) []byte { clear(b[len(b)-4096:]); return b }),
		"garbage":       change(func(b []byte) []byte { copy(b[3*4096:], bytes.Repeat([]byte{0xa5}, 3*4096)); return b }),
		"a database of another program": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			execIn(t, path, `CREATE TABLE users (name TEXT); PRAGMA user_version = 1`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := written(t, 500)
			damage(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = sqlite.Open(t.Context(), path, sqlite.Options{})
			if !errors.Is(err, queue.ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Errorf("got error %v, want %v with the path", err, queue.ErrCorrupt)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

func execIn(t *testing.T, path, script string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(script); err != nil {
		t.Fatal(err)
	}
}

func TestNewerVersion(t *testing.T) {
	path := written(t, 1)
	newest, err := sqlite.Newest()
	if err != nil {
		t.Fatal(err)
	}
	newer := newest + 3
	execIn(t, path, fmt.Sprintf(`PRAGMA user_version = %d`, newer))
	_, err = sqlite.Open(t.Context(), path, sqlite.Options{})
	_, errReading := sqlite.OpenReadOnly(t.Context(), path)
	for _, err := range []error{err, errReading} {
		if !errors.Is(err, queue.ErrNewerVersion) || !strings.Contains(err.Error(), fmt.Sprint(newer)) ||
			!strings.Contains(err.Error(), fmt.Sprint("up to ", newest)) || !strings.Contains(err.Error(), path) {
			t.Errorf("got error %v, want %v with the path and both versions", err, queue.ErrNewerVersion)
		}
	}
}

func TestUnusablePlaces(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	places := map[string]string{
		"no such folder":  filepath.Join(dir, "none", "queue.db"),
		"below a file":    filepath.Join(file, "queue.db"),
		"a folder itself": dir,
	}
	if runtime.GOOS == "linux" {
		places["a folder that nobody can write to"] = "/proc/self/queue.db"
	}
	if os.Getuid() != 0 {
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		places["a folder without the right to write"] = filepath.Join(closed, "queue.db")
	}
	for name, path := range places {
		if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got error %v, want one that names %s", name, err, path)
		}
	}
}

// TestOddPaths opens stores under names that mean something in a URI.
func TestOddPaths(t *testing.T) {
	for _, name := range []string{"a?mode=memory", "b#c", "d%20e", "f g", "ü&x=1"} {
		path := filepath.Join(t.TempDir(), name)
		openAt(t, path)
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("nothing at %q: %v", path, err)
		} else if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("others may read %q: %v", path, mode)
		}
	}
}

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	if _, err := sqlite.OpenReadOnly(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got error %v, want %v", err, fs.ErrNotExist)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.OpenReadOnly(t.Context(), path); err == nil {
		t.Error("an empty file was opened as a store")
	}
	w := openAt(t, path)
	r, err := sqlite.OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for n := range 5 { // what is written meanwhile is seen
		e := named(fmt.Sprint("j", n))
		if err := w.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{e}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Get(t.Context(), e.ID); err != nil {
			t.Error(err)
		}
	}
	_, errClaim := r.Claim(t.Context(), queue.ClaimSpec{Holder: "h", Max: 1, Now: time.Now()})
	_, errExtend := r.Extend(t.Context(), []job.Fence{1}, time.Now())
	for what, err := range map[string]error{
		"enqueue": r.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{named("x")}),
		"claim":   errClaim,
		"extend":  errExtend,
		"apply":   r.Apply(t.Context(), queue.Reclaim{Now: time.Now(), Holders: []string{"h"}}),
	} {
		if err == nil || !strings.Contains(err.Error(), "reading only") {
			t.Errorf("%s: got error %v, want one that says that the store is open for reading only", what, err)
		}
	}
	if err := w.Close(); err != nil { // the writer's end does not end the reader
		t.Fatal(err)
	}
	if _, total, err := r.List(t.Context(), queue.Filter{}); err != nil || total != 5 {
		t.Errorf("after the writer's end: %d entries, %v", total, err)
	}
}

// TestOpenAtOnce opens a new file several times at once: they migrate it once, each
// deposes those before it, and what was acknowledged is there.
func TestOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	var wg sync.WaitGroup
	var stored atomic.Int64
	for n := range 6 {
		wg.Go(func() {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			switch err := s.Enqueue(t.Context(), queue.Batch{ID: "b"}, []queue.Entry{named(fmt.Sprint("j", n))}); {
			case err == nil:
				stored.Add(1)
			case !errors.Is(err, queue.ErrDeposed):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, total, err := openAt(t, path).List(t.Context(), queue.Filter{}); err != nil || int64(total) != stored.Load() || total < 1 {
		t.Errorf("%d entries, %v; want the %d that were acknowledged, at least one", total, err, stored.Load())
	}
}
