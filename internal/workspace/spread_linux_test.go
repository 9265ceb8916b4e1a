package workspace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

// TestTreesAreSpread: a worktree, or copy, is not made where another one was just
// removed.
func TestTreesAreSpread(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	var fs unix.Statfs_t
	if err := unix.Statfs(h.repo, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type != unix.EXT4_SUPER_MAGIC {
		t.Skip("only ext4 can be asked for it")
	}
	for _, i := range []job.Isolation{job.Worktree, job.Copy} {
		id := job.NewID()
		h.prepare(id, h.spec(i), false)
		f, err := openFolder(h.m.home(id))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err != nil || flags&topDir == 0 {
			t.Errorf("%s: the job's folder has the flags %#x, %v", i, flags, err)
		}
	}
}
