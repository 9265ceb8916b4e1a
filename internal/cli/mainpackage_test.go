package cli

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMainPackageOf: Go programs say what debug/buildinfo says of them, other files
// nothing.
func TestMainPackageOf(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "odd") // the magic in the wrong place, without what follows, and at the very end
	if err := os.WriteFile(odd, []byte("x\xff Go buildinf:\x00\x02"+"\xff Go buildinf:\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff Go buildinf:"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{own, tool, "/bin/sh", odd, t.TempDir(), "/proc/self/exe", "/none"} {
		want := ""
		if info, err := buildinfo.ReadFile(file); err == nil {
			want = info.Path
		}
		if got := mainPackageOf(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if mainPackageOf(own) == "" {
		t.Error("the test has no main package")
	}
	if isOurs(os.Getpid()) {
		t.Error("the test is taken for the scheduler")
	}
}
