package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDiskFull fills the disk below a run. The run ends with a clear message;
// once there is room, the same command goes on, and what was recorded stands.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.mountSmall()
	b.config["concurrency"] = obj{"max": 1}
	gate := b.folder("gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	// Held open for both directions: the run may meet the full disk and end its
	// job before the job is let on, and a pipe that nobody reads takes no text.
	hold, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	_, workspace := b.direct("work")
	file := b.jobs(
		withPriority(shell("first", nil, "echo fine", nil), 3),
		withPriority(shell("second", workspace, `
test -e again && exit
touch again
echo ready
head -n 1 `+gate+`
for i in $(seq 3000); do echo much is said and all of it is to be stored $i; done
exec sleep `+b.unique(), nil), 2),
		shell("third", nil, "true", nil))

	r := b.start("run", file)
	r.await("the second job", onText("second", "ready"))
	ballast := filepath.Join(b.state, "ballast")
	b.fill(ballast)
	if _, err := hold.WriteString("go on\n"); err != nil {
		t.Fatal(err)
	}
	r.exit(1)
	if text := r.stderr.String(); !strings.Contains(text, "full") && !strings.Contains(text, "no space left") {
		r.fatalf("the message does not say that the disk is full:\n%s", text)
	}
	b.noProcess()

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	b.start("run", file).exit(0)
	for _, name := range []string{"first", "second", "third"} {
		b.completedOnce(b.show(name))
	}
	if j := b.show("first"); len(j.Attempts) != 1 {
		t.Errorf("a finished job was run again: %s", asJSON(t, j))
	}
	if _, total := b.unfinished(); total != 3 {
		t.Errorf("%d jobs, want 3", total)
	}
	b.soundState()
}

// TestDiskFullAtStart: a run on a full disk says so before it starts anything.
func TestDiskFullAtStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.mountSmall()
	ballast := filepath.Join(b.state, "ballast")
	b.fill(ballast)
	file := b.jobs(shell("job", nil, "touch "+b.folder("ran"), nil))
	r := b.start("run", file)
	r.exit(2)
	if text := r.stderr.String(); !strings.Contains(text, "full") && !strings.Contains(text, "no space left") {
		r.fatalf("the message does not say that the disk is full:\n%s", text)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.folder("ran")); err == nil {
		t.Error("a job was run")
	}
	b.start("run", file).exit(0)
	b.completedOnce(b.show("job"))
	b.soundState()
}

// mountSmall puts the state directory on a file system of 8 MiB of its own.
func (b *bench) mountSmall() {
	b.t.Helper()
	if err := os.Mkdir(b.state, 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := syscall.Mount("agentsched", b.state, "tmpfs", 0, "size=8m,mode=0700"); err != nil {
		if errors.Is(err, syscall.EPERM) && os.Getenv("CI") == "" {
			b.t.Skipf("a disk that can be filled needs root: mount a tmpfs: %v", err)
		}
		b.t.Fatalf("mount a tmpfs: %v", err)
	}
	b.t.Cleanup(func() {
		if err := syscall.Unmount(b.state, syscall.MNT_DETACH); err != nil {
			b.t.Errorf("unmount %s: %v", b.state, err)
		}
	})
}

// fill writes a file until nothing more can be written.
func (b *bench) fill(path string) {
	b.t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 16; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				b.t.Fatal(err)
			}
			size /= 2
		}
	}
}
