package workspace

import (
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestApplyAgain: after a job was applied, the patch of one that goes on from it, which holds the work of both, brings what is
// new, also next to the lines of the first, and beside what the user has done.
func TestApplyAgain(t *testing.T) {
	for _, i := range []job.Isolation{job.Worktree, job.Copy} {
		t.Run(string(i), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"edit": "a\nb\n", "own": "1\n2\n3\n4\n5\n", "gone": "g\n"})
			ws := h.prepare("job", h.spec(i), true)
			h.write(ws.Dir, map[string]string{"edit": "a\nX\nb\n", "new": "n\n", "own": "1\n2\n3\n4\nfive\n"})
			first := h.kept("first", ws)
			h.apply(first.Path)
			h.write(h.repo, map[string]string{"own": "one\n2\n3\n4\nfive\n"})

			ws = h.prepare("job", h.spec(i), false)
			h.write(ws.Dir, map[string]string{"edit": "a\nX\nY\nb\n", "new": "m\n"})
			second := h.kept("second", ws)
			a, err := h.m.Apply(t.Context(), second, h.repo, first)
			if err != nil || len(a.Files) != 2 {
				t.Fatalf("applied %+v, %v; want edit and new", a, err)
			}
			for file, want := range map[string]string{"edit": "a\nX\nY\nb\n", "new": "m\n", "own": "one\n2\n3\n4\nfive\n", "gone": "g\n"} {
				if got := h.read(h.repo, file); got != want {
					t.Errorf("%s is %q, want %q", file, got, want)
				}
			}
			if a, err = h.m.Apply(t.Context(), second, h.repo, first); err != nil || !a.Already {
				t.Errorf("applied once more: %+v, %v", a, err)
			}
			// What it takes back goes.
			h.write(ws.Dir, map[string]string{"edit": "a\nb\n"})
			third := h.kept("third", ws)
			if a, err = h.m.Apply(t.Context(), third, h.repo, second, first); err != nil || h.read(h.repo, "edit") != "a\nb\n" {
				t.Errorf("applied what was taken back: %+v, %v: %q", a, err, h.read(h.repo, "edit"))
			}
		})
	}
}
