package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestOrigin: a worktree of a mirror begins where its origin says, a later attempt begins
// there again without asking, and a folder behind a link is none.
func TestOrigin(t *testing.T) {
	h := newHouse(t, map[string]string{"web/a": "1\n"})
	if err := os.Symlink(t.TempDir(), filepath.Join(h.repo, "link")); err != nil {
		t.Fatal(err)
	}
	first := h.commit(h.repo, "first")
	mirror := filepath.Join(filepath.Dir(h.repo), "mirror.git")
	h.git(filepath.Dir(h.repo), "clone", "-q", "--bare", h.repo, mirror)
	id, asked := job.NewID(), 0
	origin := Origin{Repository: mirror, Commit: first, Sub: "web"}
	prepare := func(id job.ID, fresh bool) (*Workspace, error) {
		return h.m.Prepare(t.Context(), Request{Job: id, Name: "job", Spec: job.Workspace{Isolation: job.Worktree, Repo: mirror}, Fresh: fresh, Origin: func(context.Context) (Origin, error) {
			if _, err := os.Stat(h.m.Home(id)); err != nil {
				t.Errorf("asked before there is a home: %v", err)
			}
			asked++
			return origin, nil
		}})
	}
	ws, err := prepare(id, true)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(ws.Dir) != "web" || h.read(ws.Dir, "a") != "1\n" || ws.Start != first {
		t.Errorf("%+v", ws)
	}
	h.write(ws.Dir, map[string]string{"b": "2\n"})
	c := h.collect(ws)
	if changed(c) != "added web/b" || c.Commit == nil || h.git(mirror, "rev-parse", ws.Branch+"^") != first {
		t.Errorf("collected %+v", c)
	}
	origin.Commit = strings.Repeat("0", 40) // whatever it would say now
	for _, fresh := range []bool{false, true} {
		again, err := prepare(id, fresh)
		if err != nil || again.Dir != ws.Dir || again.Start != first || asked != 1 {
			t.Fatalf("fresh %v: %+v, %v, asked %d times", fresh, again, err, asked)
		}
		if _, err := os.Stat(filepath.Join(again.Dir, "b")); os.IsNotExist(err) != fresh {
			t.Errorf("fresh %v: what the first attempt left: %v", fresh, err)
		}
	}
	for _, bad := range []Origin{{mirror, first, "link"}, {mirror, first, "none"}, {mirror, first, "web/a"}, {mirror, strings.Repeat("0", 40), ""}, {h.repo, first, ""}} {
		origin = bad
		if ws, err := prepare(job.NewID(), true); err == nil {
			t.Errorf("%+v: %+v", bad, ws)
		}
	}
	if err := h.m.Remove(t.Context(), id, job.Workspace{}, RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.m.Home(id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its home is still there: %v", err)
	}
}

// TestCheckRepo: a folder of this host is a repository to fetch where it could be a
// workspace.
func TestCheckRepo(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	if err := os.MkdirAll(filepath.Join(h.root, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		h.repo: "", "file://" + h.repo: "", "https://example.com/a.git": "", "git@example.com:a.git": "",
		filepath.Join(h.root, "x"): "the scheduler's own folder", "file://" + h.root: "the scheduler's own folder",
		h.repo + "/none": "does not exist", "/proc/self/cwd": "is no clean path", "ext::sh": "is not an address", "relative/x": "is not an address",
	} {
		err := h.m.Check(t.Context(), job.Workspace{Isolation: job.Worktree, Repo: address})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}
