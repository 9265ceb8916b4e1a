package workspace

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

func TestCopyKeepsWhatMatters(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", "sub/run": "#!/bin/sh\n"})
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	os.Chmod(filepath.Join(h.repo, "sub/run"), 0o750)
	os.Chtimes(filepath.Join(h.repo, "sub/run"), when, when)
	os.Symlink("../a", filepath.Join(h.repo, "sub/link"))
	os.Symlink(h.repo, filepath.Join(h.repo, "loop"))
	if err := syscall.Mkfifo(filepath.Join(h.repo, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := net.Listen("unix", filepath.Join(h.repo, "s"))
	if err != nil {
		t.Logf("no socket: %v", err) // its path may be too long
	} else {
		defer s.Close()
	}
	big, err := os.Create(filepath.Join(h.repo, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	big.Truncate(4 << 30)
	big.WriteAt([]byte("middle"), 2<<30)
	big.Close()
	h.write(h.repo, map[string]string{".gitignore": "sparse\n"})
	h.git(h.repo, "worktree", "add", "-q", "--detach", filepath.Join(filepath.Dir(h.repo), "linked"))

	ws := h.prepare(job.NewID(), h.spec(job.Copy), false)
	info, err := os.Stat(filepath.Join(ws.Root, "sub/run"))
	if err != nil || info.Mode().Perm() != 0o750 || !info.ModTime().Equal(when) {
		t.Errorf("%v %v", info, err)
	}
	if to, _ := os.Readlink(filepath.Join(ws.Root, "loop")); to != h.repo {
		t.Errorf("loop leads to %q", to)
	}
	for _, p := range []string{"pipe", "s", ".git/worktrees"} {
		if _, err := os.Lstat(filepath.Join(ws.Root, p)); err == nil {
			t.Errorf("%s was copied", p)
		}
	}
	info, err = os.Stat(filepath.Join(ws.Root, "sparse"))
	if err != nil || info.Size() != 4<<30 {
		t.Fatalf("sparse: %v %v", info, err)
	}
	if blocks := info.Sys().(*syscall.Stat_t).Blocks; blocks*512 > 64<<20 {
		t.Errorf("sparse takes %d bytes on disk", blocks*512)
	}
	f, err := os.Open(filepath.Join(ws.Root, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 6)
	if f.ReadAt(b, 2<<30); string(b) != "middle" {
		t.Errorf("sparse holds %q", b)
	}
	// The copy is a repository of its own.
	h.commit(ws.Root, "in the copy")
	if got := h.git(h.repo, "log", "--format=%s"); got != "first" {
		t.Errorf("the original's history: %s", got)
	}
}

func TestCopyOfLinkedWorktreeIsCutOff(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	linked := filepath.Join(filepath.Dir(h.repo), "linked")
	h.git(h.repo, "worktree", "add", "-q", "-b", "side", linked)
	ws := h.prepare(job.NewID(), job.Workspace{Path: linked, Isolation: job.Copy}, false)
	if _, err := os.Lstat(filepath.Join(ws.Root, ".git")); err == nil || len(ws.Notes) != 1 || !strings.Contains(ws.Notes[0], "is not a git repository") {
		t.Errorf("git in the copy would move the user's branch; notes %q", ws.Notes)
	}
	h.write(ws.Root, map[string]string{"a": "2"})
	if got := changed(h.collect(ws)); got != "modified a" {
		t.Errorf("got %s", got)
	}
}

func TestCopyCancelled(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	in, err := os.Open(filepath.Join(h.repo, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(h.repo, "b"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cancel(cause)
	if err := copyRange(ctx, out, in, 1); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
