//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFindBubblewrap(t *testing.T) {
	for _, tc := range []struct{ name, says, version, problem string }{
		{"new", "echo bubblewrap 0.11.0", "0.11.0", ""},
		{"the oldest", "echo bubblewrap 0.4.0", "0.4.0", ""},
		{"too old", "echo bubblewrap 0.3.3", "0.3.3", "is version 0.3.3, and 0.4.0 or newer is needed"},
		{"something else", "echo hello", "hello", "is version hello"},
		{"broken", "exit 1", "", "exit status 1"},
		{"missing", "", "", "bubblewrap is not installed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := realDir(t)
			if tc.says != "" {
				mustDo(t, os.WriteFile(filepath.Join(dir, "bwrap"), []byte("#!/bin/sh\n"+tc.says+"\n"), 0o755))
			}
			t.Setenv("PATH", dir)
			_, version, err := findBubblewrap(t.Context())
			if version != tc.version || (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("version %q, %v; want %q and problem %q", version, err, tc.version, tc.problem)
			}
		})
	}
}

// TestMounts: a folder comes before what is in it, what has the same rights as what holds it is left out, and what is
// hidden where nothing is seen as well.
func TestMounts(t *testing.T) {
	dir := realDir(t)
	for _, sub := range []string{"a/b/c/d", "a-b", "x/y", "own", "secret"} {
		mustDo(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	for _, file := range []string{"a/file", "a/b/file"} {
		mustDo(t, os.WriteFile(filepath.Join(dir, file), nil, 0o644))
	}
	mustDo(t, os.Symlink("x", filepath.Join(dir, "link")))
	in := func(paths ...string) (out []string) {
		for _, p := range paths {
			out = append(out, filepath.Join(dir, p))
		}
		return out
	}
	for _, tc := range []struct {
		name string
		p    Policy
		want string
	}{
		{"nothing", Policy{}, "--proc /proc --dev /dev --tmpfs /tmp --remount-ro / --remount-ro /proc"},
		{"rights over rights", Policy{Read: in("a", "a/b/c/d", "missing"), Write: in("a/b", "a-b"), Hide: in("a/b/c", "a/file", "a/b/file", "secret")},
			"--proc /proc --dev /dev --tmpfs /tmp --ro-bind DIR/a DIR/a --bind DIR/a/b DIR/a/b --tmpfs DIR/a/b/c " +
				"--ro-bind DIR/a/b/c/d DIR/a/b/c/d --ro-bind /dev/null DIR/a/b/file --ro-bind /dev/null DIR/a/file --bind DIR/a-b DIR/a-b " +
				"--remount-ro / --remount-ro /proc --remount-ro DIR/a/b/c"},
		{"the same again", Policy{Read: in("a", "a/b", "a/b/c"), Hide: []string{"/proc", "/dev/shm"}},
			"--proc /proc --dev /dev --tmpfs /tmp --ro-bind DIR/a DIR/a --remount-ro / --remount-ro /proc"},
		{"a link on the way", Policy{Read: in("link/y")},
			"--proc /proc --dev /dev --tmpfs /tmp --ro-bind DIR/x/y DIR/x/y --symlink x DIR/link --remount-ro / --remount-ro /proc"},
		{"all", Policy{Read: []string{"/"}, Write: in("own")},
			"--ro-bind / / --proc /proc --dev /dev --tmpfs /tmp --bind DIR/own DIR/own --remount-ro /proc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.p.Level = Strict
			args, err := tc.p.mounts(func(path string) (string, error) { return path, nil })
			if got := strings.ReplaceAll(strings.Join(args, " "), dir, "DIR"); err != nil || got != tc.want {
				t.Errorf("%v\n got %s\nwant %s", err, got, tc.want)
			}
		})
	}
}

// TestOpenSource: what was no link when the policy was resolved, and is one now, is not followed.
func TestOpenSource(t *testing.T) {
	dir := realDir(t)
	mustDo(t, os.MkdirAll(dir+"/real/sub", 0o755))
	mustDo(t, os.Symlink(dir+"/real", dir+"/link"))
	for path, want := range map[string]error{dir + "/real/sub": nil, dir + "/link": unix.ELOOP, dir + "/link/sub": unix.ELOOP, dir + "/missing": unix.ENOENT} {
		f, err := openSource(path)
		if !errors.Is(err, want) {
			t.Errorf("open %s: %v, want %v", path, err, want)
		}
		f.Close()
	}
}
