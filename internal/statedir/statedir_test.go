package statedir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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
	if err := d.Held(); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("it is held, and yet: %v", err)
	}
	lock.Release()
	lock.Release()
	if err := d.Held(); err != nil {
		t.Errorf("nobody holds it, and yet: %v", err)
	}
	lock, err = d.Lock()
	if err != nil {
		t.Fatalf("lock after release: %v", err)
	}
	lock.Release()
}

// TestHeld: who only looks whether the lock is held is in nobody's way.
func TestHeld(t *testing.T) {
	d, err := statedir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var looking sync.WaitGroup
	for range 4 {
		looking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					d.Held() //nolint:errcheck // either is true at times
				}
			}
		})
	}
	defer looking.Wait()
	defer close(done)
	for range 300 {
		lock, err := d.Lock()
		if err != nil {
			t.Fatal(err)
		}
		lock.Release()
	}
}

// What others may read is closed to them when it is opened, since prompts, answers
// and tokens' hashes lie in it.
func TestOpenClosesTheDirectory(t *testing.T) {
	mode := func(path string) os.FileMode {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	path := t.TempDir() // empty, as a service manager makes it
	for _, was := range []os.FileMode{0o755, 0o750, 0o701} {
		if err := os.Chmod(path, was); err != nil {
			t.Fatal(err)
		}
		if _, err := statedir.Open(path); err != nil {
			t.Fatal(err)
		}
		if now := mode(path); now != 0o700 {
			t.Errorf("mode %04o became %04o", was, now)
		}
	}
	home := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(home, "mail"), nil, 0o600), os.Chmod(home, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := statedir.Open(home); err == nil || !strings.Contains(err.Error(), "run: chmod 700 "+home) {
		t.Errorf("a home: %v", err)
	}
	if now := mode(home); now != 0o755 {
		t.Errorf("the home has mode %04o", now)
	}
}

// The state directory of another user is for root, who works on it as it is.
func TestOpenOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	path := t.TempDir()
	if _, err := statedir.Open(path); err != nil {
		t.Fatal(err)
	}
	const owner, other = 1234, 1235
	if err := errors.Join(os.Chown(path, owner, owner), os.Chmod(path, 0o777), os.Chmod(filepath.Dir(path), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := statedir.Open(path); err != nil {
		t.Errorf("as root: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("root changed its mode: %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(filepath.Join(path, "instance.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setreuid(-1, other); err != nil {
		t.Fatal(err)
	}
	_, err := statedir.Open(path)
	if err := syscall.Setreuid(-1, 0); err != nil {
		t.Fatal(err)
	}
	if err == nil || !strings.Contains(err.Error(), "belongs to the user with id 1234") {
		t.Errorf("as another user: %v", err)
	}
}

func TestEnforcesSandbox(t *testing.T) {
	before := t.TempDir()
	if err := os.WriteFile(filepath.Join(before, "instance.json"), []byte(`{"version":1,"instance":"i1","created":"2026-01-01T00:00:00Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{before: false, t.TempDir(): true} {
		for range 2 { // made, and found again
			d, err := statedir.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.EnforcesSandbox(); got != want {
				t.Errorf("%s: enforces %v, want %v", path, got, want)
			}
		}
	}
}
