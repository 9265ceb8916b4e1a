package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestFreshKeepsWork: work that nobody has collected is a patch, which gives it
// back, before a workspace is made anew; what was collected is not kept twice; and
// what cannot be compared stays as it is, under another name.
func TestFreshKeepsWork(t *testing.T) {
	for _, i := range []job.Isolation{job.Worktree, job.Copy, job.NoWorkspace} {
		t.Run(string(i), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"a": "1\n"})
			id, spec := job.NewID(), h.spec(i)
			anew := func() *Workspace {
				t.Helper()
				ws, err := h.m.Prepare(t.Context(), Request{Job: id, Name: "job", Spec: spec, Fresh: true, Uncollected: h.out})
				if err != nil {
					t.Fatal(err)
				}
				return ws
			}
			patch := filepath.Join(h.out, UncollectedName)
			ws := anew()
			h.write(ws.Root, map[string]string{"a": "2\n", "new/b": "an hour of work\n"})
			want := state(t, ws.Root, false)
			ws = anew()
			if notes := strings.Join(ws.Notes, "\n"); !strings.Contains(notes, patch) {
				t.Fatalf("notes %q do not name %s", notes, patch)
			}
			if i == job.NoWorkspace {
				h.git(ws.Root, "init", "-q")
			}
			h.git(ws.Root, "apply", patch)
			if i == job.NoWorkspace {
				os.RemoveAll(filepath.Join(ws.Root, ".git"))
			}
			if got := state(t, ws.Root, false); got != want {
				t.Errorf("with the patch:\n%s\nwant:\n%s", got, want)
			}
			h.collect(ws)
			if err := os.Remove(patch); err != nil {
				t.Fatal(err)
			}
			ws = anew()
			if _, err := os.Stat(patch); err == nil || strings.Contains(strings.Join(ws.Notes, "\n"), "earlier attempt") {
				t.Errorf("what was collected is kept again: %v, notes %q", err, ws.Notes)
			}
			if i == job.NoWorkspace {
				return // it is compared with nothing
			}
			// Nothing can tell any more what has changed.
			h.write(ws.Root, map[string]string{"a": "3\n"})
			want = state(t, ws.Root, false)
			if err := os.WriteFile(filepath.Join(h.root, string(id), "base", "HEAD"), []byte("broken"), 0o600); err != nil {
				t.Fatal(err)
			}
			ws = anew()
			aside, err := filepath.Glob(filepath.Join(h.root, string(id), "kept-*"))
			if err != nil || len(aside) != 1 {
				t.Fatalf("kept are %v, %v", aside, err)
			}
			if got := state(t, aside[0], false); got != want || !strings.Contains(strings.Join(ws.Notes, "\n"), aside[0]) {
				t.Errorf("kept:\n%s\nwant:\n%s\nnotes %q", got, want, ws.Notes)
			}
		})
	}
}
