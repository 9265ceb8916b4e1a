package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestReapply: a job that goes on on another host finds what it had changed, as its own work: it leaves the same patch again.
func TestReapply(t *testing.T) {
	for _, i := range []job.Isolation{job.Worktree, job.Copy, job.NoWorkspace} {
		t.Run(string(i), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"edit": "a\nb\n", "gone": "g", "bin": "\x00\x01", ".gitignore": "*.log\n"})
			spec := h.spec(i)
			if i == job.NoWorkspace {
				spec = job.Workspace{Isolation: i}
			}
			below := []job.Patch(nil)
			if i == job.Worktree { // it built on another's, which is no work of its own here either
				below = []job.Patch{h.made("below", i, nil, func(dir string) { h.write(dir, map[string]string{"below": "b", "edit": "a\nb\nc\n"}) })}
			}
			first := h.stacked("job", spec, below)
			h.write(first.Dir, map[string]string{"edit": "a\nB\n", "sub/new": "n", "bin": "\x00\x02\xff"})
			if i != job.NoWorkspace {
				if err := os.Remove(filepath.Join(first.Dir, "gone")); err != nil {
					t.Fatal(err)
				}
			}
			left := h.kept("job", first)

			second := h.stacked("job", spec, below)
			if err := h.m.Reapply(t.Context(), second, left); err != nil {
				t.Fatal(err)
			}
			if got, want := state(t, second.Dir, false), state(t, first.Dir, false); got != want {
				t.Errorf("the job finds\n%s\nand had left\n%s", got, want)
			}
			if again := h.kept("again", second); again.SHA256 != left.SHA256 {
				t.Errorf("it leaves\n%s\nand had left\n%s", h.read(again.Path), h.read(left.Path))
			}
			if i != job.Copy {
				return
			}
			third := h.stacked("job", spec, nil)
			h.write(third.Dir, map[string]string{"edit": "other\nlines\n"})
			var clash *PatchesError
			if err := h.m.Reapply(t.Context(), third, left); !errors.As(err, &clash) {
				t.Errorf("where it does not fit: %v", err)
			}
		})
	}
}
