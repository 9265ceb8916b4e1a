package statedir

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

// likeAUser calls f on a thread for which the modes of files count, as they do not for
// root.
func likeAUser(t *testing.T, f func() (int, error)) (n int, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		var caps [2]unix.CapUserData
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err = unix.Capget(&header, &caps[0]); err != nil {
			return
		}
		caps[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		if err = unix.Capset(&header, &caps[0]); err != nil {
			return
		}
		n, err = f()
	}()
	<-done
	return n, err
}

// TestRemoveCaches discards what the module cache of Go and a malicious run leave.
func TestRemoveCaches(t *testing.T) {
	d, err := Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := d.RemoveCaches(); n != 0 || err != nil {
		t.Errorf("removed %d of none, %v", n, err)
	}
	mine := filepath.Join(t.TempDir(), "mine")
	if err := os.MkdirAll(filepath.Join(mine, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []job.Tenant{"website", "../.."} {
		cache, err := d.MakeCache(tenant)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", cache, info, err)
		}
		module := filepath.Join(cache, "go-mod", "example.com", "m@v1.0.0", "sub")
		if err := os.MkdirAll(module, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(module, "m.go"), nil, 0o444); err != nil {
			t.Fatal(err)
		}
		for name, to := range map[string]string{"mine": mine, "up": "..", "dir": filepath.Join(mine, "dir")} {
			if err := os.Symlink(to, filepath.Join(module, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Mkfifo(filepath.Join(module, "pipe"), 0); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{module, filepath.Dir(module)} {
			if err := os.Chmod(dir, 0o555); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(cache, "closed", "inner"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(cache, "closed"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(mine, "dir"), 0o555); err != nil {
		t.Fatal(err)
	}
	n, err := likeAUser(t, d.RemoveCaches)
	if n != 2 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if left, err := os.ReadDir(d.Caches()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if info, err := os.Stat(filepath.Join(mine, "dir")); err != nil || info.Mode() != fs.ModeDir|0o555 {
		t.Errorf("what a link led to became %v, %v", info, err)
	}
}
