package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// A job without a workspace that leaves nothing costs no run of git, and no
// file but its two folders.
func TestEmptyNeedsNoGit(t *testing.T) {
	h := newHouse(t, nil)
	h.m.run = func(_ context.Context, cmd *exec.Cmd) error {
		t.Errorf("ran %q", cmd.Args)
		return errors.New("no git here")
	}
	id, spec := job.NewID(), h.spec(job.NoWorkspace)
	ws := h.prepare(id, spec, true)
	if c := h.collect(ws); c.Patch != "" || len(c.Files) > 0 || ws.Start != emptyTree {
		t.Errorf("workspace %+v, changes %+v", ws, c)
	}
	if again := h.prepare(id, spec, true); again.Dir != ws.Dir || again.Start != ws.Start {
		t.Errorf("fresh: %+v, want %+v", again, ws)
	}
	if open, err := h.m.Open(t.Context(), id, spec); err != nil || open.Dir != ws.Dir {
		t.Errorf("open: %+v, %v", open, err)
	}
	var found []string
	err := filepath.WalkDir(h.m.home(id), func(path string, _ fs.DirEntry, err error) error {
		found = append(found, path)
		return err
	})
	if want := []string{h.m.home(id), ws.Dir}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %q, %v, want %q", found, err, want)
	}
	if err := h.m.Remove(t.Context(), id, spec, RemoveOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.m.home(id)); !os.IsNotExist(err) {
		t.Errorf("left after removal: %v", err)
	}
	if _, err := h.m.Open(t.Context(), id, spec); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open after removal: %v", err)
	}
	if err := h.m.Remove(t.Context(), id, spec, RemoveOptions{}); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}

// What was made in an empty workspace is kept, found and compared from
// whatever state the program was killed in.
func TestEmptyKeepsWork(t *testing.T) {
	for _, tc := range []struct {
		name  string
		saved bool
		harm  func(h *house, id job.ID) // after the work was done
	}{
		{"never collected", false, func(*house, job.ID) {}},
		{"collected", true, func(h *house, id job.ID) { h.collect(&Workspace{Job: id}) }},
		{"killed while the base was made", false, func(h *house, id job.ID) {
			h.write(filepath.Join(h.m.home(id), "base"), map[string]string{"HEAD": "rubbish", "objects/x": ""})
		}},
		{"killed while it was compared", true, func(h *house, id job.ID) {
			h.collect(&Workspace{Job: id})
			h.write(h.m.home(id), map[string]string{"now.index": "rubbish", "now.index.lock": ""})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHouse(t, nil)
			id, spec := job.NewID(), h.spec(job.NoWorkspace)
			ws := h.prepare(id, spec, true)
			h.write(ws.Dir, map[string]string{"a": "1\n", "deep/b": "2\n"})
			tc.harm(h, id)
			if !tc.saved {
				unsaved := (*UnsavedError)(nil)
				if err := h.m.Remove(t.Context(), id, spec, RemoveOptions{}); !errors.As(err, &unsaved) {
					t.Errorf("removal: %v, want it refused", err)
				}
			}
			resumed := h.prepare(id, spec, false)
			if h.read(resumed.Dir, "a") != "1\n" {
				t.Error("the work is gone")
			}
			if got, want := changed(h.collect(resumed)), "added a, added deep/b"; got != want {
				t.Errorf("changed: %s, want %s", got, want)
			}
			fresh := h.prepare(id, spec, true)
			if left, err := os.ReadDir(fresh.Dir); err != nil || len(left) > 0 {
				t.Errorf("a fresh one holds %v, %v", left, err)
			}
			h.write(fresh.Dir, map[string]string{"c": "3\n"})
			if got := changed(h.collect(fresh)); got != "added c" {
				t.Errorf("changed after a fresh start: %s", got)
			}
			if err := h.m.Remove(t.Context(), id, spec, RemoveOptions{}); err != nil {
				t.Errorf("removal of what was collected: %v", err)
			}
		})
	}
}

// A folder that was removed and made again while somebody waited for its lock
// is another one: both would hold a lock otherwise.
func TestJobLockIsOfTheFolderThatIsThere(t *testing.T) {
	h := newHouse(t, nil)
	first, err := h.m.makeAndLockJob(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	if err := os.RemoveAll(h.m.home("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.m.lockJob(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock of a folder that is gone: %v", err)
	}
	second, err := h.m.makeAndLockJob(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.m.makeAndLockJob(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("a third has it too: %v", err)
	}
	second.release()
}
