package statedir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

func TestOpenMakesAndKeepsTheInstance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	var wg sync.WaitGroup
	ids := make([]job.InstanceID, 8)
	for i := range ids {
		wg.Go(func() {
			d, err := statedir.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = d.Instance()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("opened at once, the instances are %q", ids)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v; want 0700", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(path, "*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %q, %v", left, err)
	}
	d, err := statedir.OpenExisting(path)
	if err != nil || d.Instance() != ids[0] {
		t.Errorf("opened again: %v, %v", d, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	write := func(t *testing.T, text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "instance.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Run("newer version", func(t *testing.T) {
		_, err := statedir.Open(write(t, `{"version": 99, "instance": "x"}`))
		if !errors.Is(err, statedir.ErrNewer) || !strings.Contains(err.Error(), "version 99") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("foreign file", func(t *testing.T) {
		for _, text := range []string{"", "hello", `{"version": 0}`, `{"version": 1}`} {
			dir := write(t, text)
			if _, err := statedir.Open(dir); err == nil || !strings.Contains(err.Error(), "instance.json") {
				t.Errorf("%q: error %v", text, err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "instance.json")); err != nil || string(got) != text {
				t.Errorf("%q was overwritten with %q", text, got)
			}
		}
	})
	t.Run("below a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := statedir.Open(filepath.Join(file, "state")); err == nil || !strings.Contains(err.Error(), "--state") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("not there", func(t *testing.T) {
		if _, err := statedir.OpenExisting(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
}

func TestLock(t *testing.T) {
	d, err := statedir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Lock()
	var locked *statedir.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("second lock: %v", err)
	}
	lock.Release()
	lock.Release()
	lock, err = d.Lock()
	if err != nil {
		t.Fatalf("lock after release: %v", err)
	}
	lock.Release()
}
