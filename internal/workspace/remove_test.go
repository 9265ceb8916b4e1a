package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

func TestRemove(t *testing.T) {
	change := func(h *house, ws *Workspace) { h.write(ws.Root, map[string]string{"a": "2", "new": "n"}) }
	for _, c := range []struct {
		name   string
		i      job.Isolation
		do     func(h *house, ws *Workspace)
		reason string // "" means it goes
		branch bool   // the branch stays
	}{
		{"untouched", job.Worktree, func(*house, *Workspace) {}, "", false},
		{"ignored files only", job.Worktree, func(h *house, ws *Workspace) { h.write(ws.Root, map[string]string{"x.log": "x"}) }, "", false},
		{"never collected", job.Worktree, change, "never collected", false},
		{"never collected", job.Copy, change, "never collected", false},
		{"never collected", job.NoWorkspace, change, "never collected", false},
		{"collected", job.Worktree, func(h *house, ws *Workspace) { change(h, ws); h.collect(ws) }, "", false},
		{"collected", job.Copy, func(h *house, ws *Workspace) { change(h, ws); h.collect(ws) }, "", false},
		{"committed and collected", job.Worktree, func(h *house, ws *Workspace) { change(h, ws); h.commit(ws.Root, "c"); h.collect(ws) }, "", false},
		{"read-only folders", job.Worktree, func(h *house, ws *Workspace) {
			h.write(ws.Root, map[string]string{"mod/cache.log": "x"})
			os.Chmod(filepath.Join(ws.Root, "mod"), 0o555)
		}, "", false},
		{"changed since", job.Worktree, func(h *house, ws *Workspace) {
			change(h, ws)
			h.collect(ws)
			h.write(ws.Root, map[string]string{"a": "3"})
		}, "changed after", true},
		{"patch gone", job.Worktree, func(h *house, ws *Workspace) { change(h, ws); os.Remove(h.collect(ws).Patch) }, "patch is gone", true},
		{"patch edited", job.Copy, func(h *house, ws *Workspace) {
			change(h, ws)
			os.WriteFile(h.collect(ws).Patch, []byte("x"), 0o600)
		}, "was changed", false},
		{"commit that the patch lacks", job.Worktree, func(h *house, ws *Workspace) {
			change(h, ws)
			h.commit(ws.Root, "more than what is left")
			os.Remove(filepath.Join(ws.Root, "new"))
			h.collect(ws)
		}, "", true},
		{"commit on no branch", job.Worktree, func(h *house, ws *Workspace) {
			h.git(ws.Root, "checkout", "-q", "--detach")
			change(h, ws)
			h.commit(ws.Root, "detached")
			h.write(ws.Root, map[string]string{"a": "1"})
			h.collect(ws)
		}, "", true},
		{"commit after collecting", job.Worktree, func(h *house, ws *Workspace) {
			change(h, ws)
			h.collect(ws)
			h.commit(ws.Root, "by a person, who says why")
		}, `the branch "agentsched/job-`, true},
		{"another branch of the agent's", job.Worktree, func(h *house, ws *Workspace) {
			h.git(ws.Root, "checkout", "-q", "-b", "mine")
			change(h, ws)
			h.commit(ws.Root, "mine")
			h.git(ws.Root, "checkout", "-q", ws.Branch)
			h.git(ws.Root, "pack-refs", "--all")
			h.collect(ws)
		}, `the branch "mine"`, false},
		{"a stash of the agent's", job.Worktree, func(h *house, ws *Workspace) {
			change(h, ws)
			h.git(ws.Root, "stash")
			os.Remove(filepath.Join(ws.Root, "new"))
			h.collect(ws)
		}, "which is in the stash", false},
		{"commit on a branch of the agent's", job.Worktree, func(h *house, ws *Workspace) {
			h.git(ws.Root, "checkout", "-q", "-b", "mine")
			change(h, ws)
			h.commit(ws.Root, "mine")
			h.collect(ws)
		}, "", false},
		{"branch checked out by the user", job.Worktree, func(h *house, ws *Workspace) {
			change(h, ws)
			h.collect(ws)
			h.git(h.repo, "checkout", "-q", ws.Branch)
		}, "", true},
		{"repository gone", job.Worktree, func(h *house, ws *Workspace) { os.RemoveAll(h.repo) }, "", false},
	} {
		t.Run(c.name+" "+string(c.i), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"a": "1", ".gitignore": "*.log\n"})
			id := job.NewID()
			ws := h.prepare(id, h.spec(c.i), false)
			c.do(h, ws)
			err := h.m.Remove(t.Context(), id, h.spec(c.i), RemoveOptions{})
			_, gone := os.Stat(ws.Root)
			unsaved := (*UnsavedError)(nil)
			if c.reason == "" && (err != nil || gone == nil) || c.reason != "" && (!errors.As(err, &unsaved) || !strings.Contains(err.Error(), c.reason) || gone != nil) {
				t.Fatalf("got %v, want %q", err, c.reason)
			}
			if isDir(h.repo) && ws.Branch != "" {
				if got := h.git(h.repo, "branch", "--list", ws.Branch) != ""; got != c.branch {
					t.Errorf("branch there: %v, want %v", got, c.branch)
				}
			}
			if err := h.m.Remove(t.Context(), id, h.spec(c.i), RemoveOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(h.m.home(id)); !os.IsNotExist(err) {
				t.Errorf("left: %v", err)
			}
			if err := h.m.Remove(t.Context(), id, h.spec(c.i), RemoveOptions{}); err != nil {
				t.Errorf("removing nothing: %v", err)
			}
			if _, err := h.m.Open(t.Context(), id, h.spec(c.i)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("open after removal: %v", err)
			}
		})
	}
}

func TestRemoveDirectKeepsTheFolder(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	id := job.NewID()
	ws := h.prepare(id, h.spec(job.Direct), false)
	h.write(ws.Root, map[string]string{"a": "2"})
	before := state(t, h.repo, true)
	if err := h.m.Remove(t.Context(), id, h.spec(job.Direct), RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if state(t, h.repo, true) != before {
		t.Error("the user's folder changed")
	}
}

// TestRemoveKeepsTheUnapplied: with KeepUnapplied a workspace goes once the user has
// what its patch holds, however it came to him.
func TestRemoveKeepsTheUnapplied(t *testing.T) {
	mark := func(h *house, c Changes) {
		if err := h.m.MarkApplied(h.t.Context(), "/no/such.patch", c.Patch); err != nil {
			h.t.Fatal(err)
		}
	}
	commit := func(h *house, ws *Workspace) { h.commit(ws.Root, "work") }
	for _, c := range []struct {
		name   string
		i      job.Isolation
		before func(h *house, ws *Workspace) // the patch is collected
		after  func(h *house, ws *Workspace, c Changes)
		kept   string // "" means it goes
	}{
		{"nothing done with it", job.Worktree, nil, nil, "neither applied nor merged"},
		{"nothing done with it", job.Copy, nil, nil, "neither applied nor merged"},
		{"nothing done with it", job.NoWorkspace, nil, nil, "neither applied nor merged"},
		{"applied", job.Worktree, nil, func(h *house, _ *Workspace, c Changes) { mark(h, c) }, ""},
		{"applied", job.NoWorkspace, nil, func(h *house, _ *Workspace, c Changes) { mark(h, c) }, ""},
		{"applied, changed and collected again", job.Copy, nil, func(h *house, ws *Workspace, c Changes) {
			mark(h, c)
			h.write(ws.Root, map[string]string{"a": "3"})
			h.collect(ws)
		}, "neither applied nor merged"},
		{"changed since", job.Worktree, nil, func(h *house, ws *Workspace, c Changes) { mark(h, c); h.write(ws.Root, map[string]string{"a": "3"}) }, "changed after"},
		{"the folder holds the same", job.Worktree, nil, func(h *house, _ *Workspace, c Changes) { h.git(h.repo, "apply", c.Patch) }, ""},
		{"the folder holds the same", job.Copy, nil, func(h *house, _ *Workspace, c Changes) { h.git(h.repo, "apply", c.Patch) }, ""},
		{"the folder holds half", job.Worktree, nil, func(h *house, _ *Workspace, c Changes) { h.git(h.repo, "apply", "--include=new", c.Patch) }, "neither applied nor merged"},
		{"committed on the branch", job.Worktree, commit, nil, "neither applied nor merged"},
		{"the branch is merged, and more was done since", job.Worktree, commit, func(h *house, ws *Workspace, _ Changes) {
			h.git(h.repo, "merge", "-q", ws.Branch)
			h.write(h.repo, map[string]string{"a": "the user's"})
			h.commit(h.repo, "more")
		}, ""},
		{"a part of it is merged", job.Worktree, func(h *house, ws *Workspace) {
			commit(h, ws)
			h.write(ws.Root, map[string]string{"new": "more"})
		}, func(h *house, ws *Workspace, _ Changes) { h.git(h.repo, "merge", "-q", ws.Branch+"^") }, "neither applied nor merged"},
		{"the branch is merged", job.Worktree, nil, func(h *house, ws *Workspace, _ Changes) {
			h.git(h.repo, "merge", "-q", ws.Branch)
			h.write(h.repo, map[string]string{"a": "the user's"})
		}, ""},
		{"the branch is pushed", job.Worktree, commit, func(h *house, ws *Workspace, _ Changes) {
			h.git(h.repo, "update-ref", "refs/remotes/origin/x", "refs/heads/"+ws.Branch)
		}, ""},
		{"a job works in the folder", job.Worktree, nil, func(h *house, _ *Workspace, _ Changes) {
			lock, err := h.m.Lock(h.t.Context(), h.spec(job.Direct))
			if err != nil {
				h.t.Fatal(err)
			}
			h.t.Cleanup(func() { lock.Close() })
		}, "could not be compared"},
	} {
		t.Run(c.name+" "+string(c.i), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"a": "1"})
			id := job.NewID()
			ws := h.prepare(id, h.spec(c.i), false)
			h.write(ws.Root, map[string]string{"a": "2", "new": "n"})
			if c.before != nil {
				c.before(h, ws)
			}
			patch := h.collect(ws)
			if c.after != nil {
				c.after(h, ws, patch)
			}
			before := state(t, h.repo, false)
			err := h.m.Remove(t.Context(), id, h.spec(c.i), RemoveOptions{KeepUnapplied: true})
			unsaved := (*UnsavedError)(nil)
			_, gone := os.Stat(ws.Root)
			if c.kept == "" && (err != nil || gone == nil) || c.kept != "" && (!errors.As(err, &unsaved) || !strings.Contains(unsaved.Reason, c.kept) || gone != nil) {
				t.Errorf("got %v, want %q", err, c.kept)
			}
			if state(t, h.repo, false) != before {
				t.Error("the user's folder was changed")
			}
			if c.kept == "" || c.kept == "changed after" {
				return
			}
			if unsaved != nil && unsaved.Patch != h.collect(ws).Patch {
				t.Errorf("patch %q", unsaved.Patch)
			}
			if err := h.m.Remove(t.Context(), id, h.spec(c.i), RemoveOptions{}); err != nil {
				t.Errorf("what forgets finished jobs keeps it: %v", err)
			}
		})
	}
}
