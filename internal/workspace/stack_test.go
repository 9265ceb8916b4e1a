package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// layered are the isolations that can begin with patches.
var layered = []job.Isolation{job.Worktree, job.Copy}

// made lets a job of its own work on the user's folder, with the patches of
// others, and returns its patch.
func (h *house) made(name job.Name, i job.Isolation, on []job.Patch, work func(dir string)) job.Patch {
	h.t.Helper()
	ws := h.stacked(name, h.spec(i), on)
	work(ws.Dir)
	return h.kept(name, ws)
}

func (h *house) stacked(name job.Name, spec job.Workspace, on []job.Patch) *Workspace {
	h.t.Helper()
	ws, err := h.m.Prepare(h.t.Context(), Request{Job: job.NewID(), Name: name, Spec: spec, Fresh: true, Patches: on})
	if err != nil {
		h.t.Fatal(err)
	}
	return ws
}

func (h *house) kept(name job.Name, ws *Workspace) job.Patch {
	h.t.Helper()
	c, err := h.m.Collect(h.t.Context(), ws, filepath.Join(h.out, string(name)))
	if err != nil {
		h.t.Fatal(err)
	}
	return job.Patch{Job: name, Path: c.Patch, Bytes: c.Bytes, SHA256: c.SHA256}
}

func (h *house) copyOf(dir string) string {
	h.t.Helper()
	to := filepath.Join(h.t.TempDir(), "copy")
	if err := (&copier{m: h.m, ctx: h.t.Context(), from: dir}).dir(dir, to); err != nil {
		h.t.Fatal(err)
	}
	return to
}

// TestStack lets a job do all that one can do to files, and a second one begin
// with that: it must find the same files, and its own patch must hold nothing
// of them.
func TestStack(t *testing.T) {
	for _, i := range layered {
		t.Run(string(i), func(t *testing.T) {
			t.Parallel()
			long := strings.Repeat("a line of text\n", 50)
			h := newHouse(t, map[string]string{
				"edit": long, "gone": "g", "dir/gone": "g", "old name": long + "x", "moved": long + "y", "script": "#!/bin/sh\n",
				"becomes-dir": "f", "becomes-file/x": "d", "becomes-link": "l", "bin": "\x00\x01\x02", ".gitignore": "*.log\n", "crlf": "a\r\nb\r\n", "nonl": "a",
			})
			// Neither hooks nor keys of the user take part.
			h.write(h.repo, map[string]string{".git/hooks/post-commit": "#!/bin/sh\ntouch ran\n", ".git/hooks/reference-transaction": "#!/bin/sh\nexit 1\n"})
			os.Chmod(filepath.Join(h.repo, ".git/hooks/post-commit"), 0o755)
			os.Chmod(filepath.Join(h.repo, ".git/hooks/reference-transaction"), 0o755)
			h.write(h.repo, map[string]string{".git/config": h.read(h.repo, ".git/config") + "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n[merge]\n\tconflictStyle = diff3\n"})
			before := h.git(h.repo, "status", "--porcelain") + h.git(h.repo, "log", "--format=%H")

			var first string
			a := h.made("a", i, nil, func(dir string) {
				h.write(dir, map[string]string{"edit": "first\n" + long, "new": "n", "empty": "", "bin": "\x00\x01\x03\xff", "crlf": "a\r\nc\r\n", "nonl": "b"})
				for from, to := range map[string]string{"old name": "new name", "moved": "sub/moved"} {
					os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755)
					if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
						t.Fatal(err)
					}
				}
				for _, p := range []string{"gone", "dir", "becomes-dir", "becomes-file", "becomes-link"} {
					os.RemoveAll(filepath.Join(dir, p))
				}
				h.write(dir, map[string]string{"becomes-dir/x": "other", "becomes-file": "another"})
				os.Symlink("keep", filepath.Join(dir, "becomes-link"))
				os.Symlink("nowhere", filepath.Join(dir, "dangling"))
				os.Chmod(filepath.Join(dir, "script"), 0o755)
				for _, n := range nasty {
					h.write(dir, map[string]string{"nasty/" + n: n})
				}
				first = h.copyOf(dir)
			})
			c := h.made("c", i, nil, func(dir string) { h.write(dir, map[string]string{"edit": long + "last\n", "of c": "c"}) })
			h.write(first, map[string]string{"edit": "first\n" + long + "last\n", "of c": "c"})

			ws := h.stacked("b", h.spec(i), []job.Patch{a, {Job: "idle"}, c})
			if got, want := state(t, ws.Dir, false), state(t, first, false); got != want {
				t.Fatalf("begins with\n%s\nwant\n%s", got, want)
			}
			if c := h.collect(ws); c.Patch != "" || len(c.Files) != 0 {
				t.Errorf("nothing was done, and the patch holds %s", changed(c))
			}
			if got := h.git(h.repo, "status", "--porcelain") + h.git(h.repo, "log", "--format=%H"); got != before {
				t.Errorf("the user's repository changed:\n%s\nwas\n%s", got, before)
			}
			if i == job.Worktree {
				if got := h.git(ws.Dir, "log", "--format=%an %s"); got != "agentsched patch of c\nagentsched patch of a\nAnn first" {
					t.Errorf("commits:\n%s", got)
				}
				if got := h.git(ws.Dir, "status", "--porcelain"); got != "" || ws.Start != h.git(ws.Dir, "rev-parse", "HEAD") {
					t.Errorf("start %s, status %s", ws.Start, got)
				}
			}

			h.write(ws.Dir, map[string]string{"new": "n of b", "nonl": "b of b"})
			os.Remove(filepath.Join(ws.Dir, "crlf"))
			own := h.collect(ws)
			if got := changed(own); got != "deleted crlf, modified new, modified nonl" {
				t.Errorf("its own changes are %s", got)
			}
			var live bytes.Buffer
			if _, err := h.m.Diff(t.Context(), ws, &live); err != nil || live.String() != h.read(own.Patch) {
				t.Errorf("the live diff is another: %v", err)
			}
			for _, p := range []string{a.Path, c.Path, own.Patch} {
				h.apply(p)
			}
			if got, want := state(t, h.repo, false), state(t, ws.Dir, false); got != want {
				t.Errorf("one after the other applied\n%s\nwant\n%s", got, want)
			}
			if _, err := os.Stat(filepath.Join(h.repo, "ran")); err == nil {
				t.Error("a hook ran")
			}
		})
	}
}

// TestStackOutlivesItsJobs removes the jobs that a workspace was made from,
// restarts it, and goes on with its own patch.
func TestStackOutlivesItsJobs(t *testing.T) {
	for _, i := range layered {
		t.Run(string(i), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"f": "1\n2\n3\n4\n5\n6\n7\n8\n9\n"})
			h.write(h.repo, map[string]string{"untracked": "u\n"})
			edit := func(name, from, to string) func(string) {
				return func(dir string) {
					h.write(dir, map[string]string{name: strings.Replace(h.read(dir, name), from, to, 1)})
				}
			}
			a := h.made("a", i, nil, edit("f", "1", "one"))
			b := h.made("b", i, []job.Patch{a}, edit("f", "one", "uno"))
			id := job.NewID()
			req := Request{Job: id, Name: "c", Spec: h.spec(i), Fresh: true, Patches: []job.Patch{a, b}}
			ws, err := h.m.Prepare(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			homes, _ := os.ReadDir(h.root)
			for _, home := range homes {
				if home.Name() != string(id) && !strings.HasPrefix(home.Name(), ".") {
					if err := h.m.Remove(t.Context(), job.ID(home.Name()), h.spec(i), RemoveOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			edit("f", "9", "nove")(ws.Dir)
			if c := h.collect(ws); changed(c) != "modified f" || !strings.Contains(h.read(c.Patch), "+nove") || strings.Contains(h.read(c.Patch), "+uno") {
				t.Errorf("patch:\n%s", h.read(c.Patch))
			}

			req.Fresh = false // a resumed attempt finds what was there
			if ws, err = h.m.Prepare(t.Context(), req); err != nil || !strings.HasPrefix(h.read(ws.Dir, "f"), "uno\n") || !strings.HasSuffix(h.read(ws.Dir, "f"), "nove\n") {
				t.Errorf("resumed: %v, %q", err, h.read(ws.Dir, "f"))
			}
			req.Fresh = true
			if ws, err = h.m.Prepare(t.Context(), req); err != nil || h.read(ws.Dir, "f") != "uno\n2\n3\n4\n5\n6\n7\n8\n9\n" {
				t.Errorf("afresh: %v, %q", err, h.read(ws.Dir, "f"))
			}
			if err := h.m.Remove(t.Context(), id, h.spec(i), RemoveOptions{}); err != nil {
				t.Errorf("a workspace with nothing of its own: %v", err)
			}
			if got := h.git(h.repo, "branch", "--list", "agentsched/*"); got != "" {
				t.Errorf("branches are left: %s", got)
			}
		})
	}
}

// TestStackAgain has patches that are there already: a copy of a folder in
// which a job of isolation direct has worked.
func TestStackAgain(t *testing.T) {
	h := newHouse(t, map[string]string{"f": "1\n2\n3\n", "old": strings.Repeat("x\n", 20), "gone": "g"})
	a := h.made("a", job.Direct, nil, func(dir string) {
		h.write(dir, map[string]string{"f": "one\n2\n3\n", "new": "n"})
		os.Remove(filepath.Join(dir, "gone"))
		os.Rename(filepath.Join(dir, "old"), filepath.Join(dir, "renamed"))
	})
	ws := h.stacked("b", h.spec(job.Copy), []job.Patch{a})
	if got, want := state(t, ws.Dir, false), state(t, h.repo, false); got != want {
		t.Errorf("begins with\n%s\nwant\n%s", got, want)
	}
	ws = h.stacked("c", h.spec(job.Worktree), []job.Patch{a}) // which begins without
	if got, want := state(t, ws.Dir, false), state(t, h.repo, false); got != want {
		t.Errorf("begins with\n%s\nwant\n%s", got, want)
	}
}

// TestStackInFolders mixes patches of repositories with folders below their tops.
func TestStackInFolders(t *testing.T) {
	h := newHouse(t, map[string]string{"top": "t", "a/b/f": "1\n2\n3\n4\n", "a/b/old": strings.Repeat("x\n", 20)})
	sub := func(i job.Isolation) job.Workspace {
		return job.Workspace{Path: filepath.Join(h.repo, "a/b"), Isolation: i}
	}
	rename := func(dir string) {
		h.write(dir, map[string]string{"f": "one\n2\n3\n4\n", "new": "n"})
		os.Rename(filepath.Join(dir, "old"), filepath.Join(dir, "renamed"))
	}
	for _, from := range layered {
		for _, to := range layered {
			made := h.stacked("a", sub(from), nil)
			rename(made.Dir)
			ws := h.stacked("b", sub(to), []job.Patch{h.kept("a", made)})
			if got, want := state(t, ws.Dir, false), state(t, made.Dir, false); got != want {
				t.Errorf("%s to %s begins with\n%s\nwant\n%s", from, to, got, want)
			}
			if c := h.collect(ws); len(c.Files) > 0 {
				t.Errorf("%s to %s: %s", from, to, changed(c))
			}
		}
	}
	outer := h.made("outer", job.Worktree, nil, func(dir string) { h.write(dir, map[string]string{"top": "T"}) })
	_, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "b", Spec: sub(job.Copy), Fresh: true, Patches: []job.Patch{outer}})
	if err == nil || !strings.Contains(err.Error(), "the patch of job outer changes top, which lies outside of "+h.repo+"/a/b") {
		t.Errorf("got %v", err)
	}
}

func TestStackRefused(t *testing.T) {
	h := newHouse(t, map[string]string{"f": "f"})
	there := h.made("a", job.Worktree, nil, func(dir string) { h.write(dir, map[string]string{"f": "g"}) })
	gone := job.Patch{Job: "gone", Path: filepath.Join(h.out, "no", PatchName)}
	evil := job.Patch{Job: "evil", Path: filepath.Join(h.out, "evil")}
	h.write(h.out, map[string]string{"evil": "diff --git a/../out b/../out\nnew file mode 100644\n--- /dev/null\n+++ b/../out\n@@ -0,0 +1 @@\n+x\n", "torn": h.read(there.Path)[:150] + "\n@@ -1 +1"})
	for _, test := range []struct {
		isolation job.Isolation
		patch     job.Patch
		want      string
	}{
		{job.Direct, there, "the patch of job a cannot be applied with isolation direct"},
		{job.NoWorkspace, there, "the patch of job a cannot be applied with isolation none"},
		{job.Worktree, gone, "the patch of job gone is missing: " + gone.Path},
		{job.Copy, evil, `the patch of job evil leads out of the folder: "../out"`},
		{job.Worktree, job.Patch{Job: "torn", Path: filepath.Join(h.out, "torn")}, "read the patch of job torn"},
	} {
		id := job.NewID()
		_, err := h.m.Prepare(t.Context(), Request{Job: id, Name: "b", Spec: h.spec(test.isolation), Fresh: true, Patches: []job.Patch{test.patch}})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
		if _, err := h.m.Open(t.Context(), id, h.spec(test.isolation)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a workspace was left: %v", test.patch.Job, err)
		}
	}
	if got := h.git(h.repo, "status", "--porcelain"); got != "" {
		t.Errorf("the user's folder: %s", got)
	}
}

// TestStackLeavesSubmodules has a job that removed a submodule and changed a file.
func TestStackLeavesSubmodules(t *testing.T) {
	h := newHouse(t, map[string]string{"f": "f"})
	inner := newHouse(t, map[string]string{"inside": "i"})
	h.git(h.repo, "submodule", "add", "-q", inner.repo, "sub[1]")
	h.commit(h.repo, "with a submodule")
	a := h.made("a", job.Worktree, nil, func(dir string) {
		os.RemoveAll(filepath.Join(dir, "sub[1]"))
		h.write(dir, map[string]string{"f": "g", "sub1": "s"})
	})
	if !strings.Contains(h.read(a.Path), "deleted file mode 160000") {
		t.Fatalf("the patch:\n%s", h.read(a.Path))
	}
	ws := h.stacked("b", h.spec(job.Worktree), []job.Patch{a})
	if h.read(ws.Dir, "f") != "g" || h.read(ws.Dir, "sub1") != "s" || !isDir(filepath.Join(ws.Dir, "sub[1]")) {
		t.Errorf("begins with\n%s", state(t, ws.Dir, false))
	}
	if notes := strings.Join(ws.Notes, "\n"); !strings.Contains(notes, "submodule sub[1]: the changes of job a to it are not applied") {
		t.Errorf("notes: %s", notes)
	}
	if c := h.collect(ws); len(c.Files) > 0 {
		t.Errorf("changes: %s", changed(c))
	}
}

// TestStackIsRepeated fails git commands of a Prepare, one each time: the next
// Prepare must make what the first would have.
func TestStackIsRepeated(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]string{"f": "1\n2\n3\n4\n", "g": "g"})
	a := h.made("a", job.Worktree, nil, func(dir string) { h.write(dir, map[string]string{"f": "one\n2\n3\n4\n", "new": "n"}) })
	b := h.made("b", job.Worktree, nil, func(dir string) {
		h.write(dir, map[string]string{"f": "1\n2\n3\nfour\n"})
		os.Remove(filepath.Join(dir, "g"))
	})
	req := Request{Job: job.NewID(), Name: "c", Spec: h.spec(job.Worktree), Fresh: true, Patches: []job.Patch{a, b}}
	for n, failed := 1, true; failed; n += 4 {
		left := n
		broken := New(Config{Root: h.root, Locks: h.root + "-locks", Run: func(_ context.Context, cmd *exec.Cmd) error {
			if left--; left == 0 {
				return errors.New("out of memory")
			}
			return cmd.Run()
		}})
		_, err := broken.Prepare(t.Context(), req)
		if failed = left <= 0; failed && err == nil {
			continue // some questions may go unanswered
		}
		ws, err := h.m.Prepare(t.Context(), Request{Job: req.Job, Name: req.Name, Spec: req.Spec, Patches: req.Patches, Fresh: !failed})
		if err != nil {
			t.Fatalf("after command %d failed: %v", n, err)
		}
		got := fmt.Sprint(h.read(ws.Dir, "f"), h.read(ws.Dir, "new"), isDir(filepath.Join(ws.Dir, "g")), h.git(ws.Dir, "log", "--format=%s"))
		if want := "one\n2\n3\nfour\nnfalsepatch of b\npatch of a\nfirst"; got != want {
			t.Fatalf("after command %d failed:\n%s\nwant\n%s", n, got, want)
		}
		if c := h.collect(ws); len(c.Files) > 0 {
			t.Fatalf("after command %d failed: %s", n, changed(c))
		}
	}
}

// TestStackWithoutItsBase has a patch against files that exist nowhere any more:
// it fits by its context, or does not.
func TestStackWithoutItsBase(t *testing.T) {
	h := newHouse(t, map[string]string{"keep": "k"})
	h.write(h.repo, map[string]string{"f": "1\n2\n3\n4\n5\n6\n7\n8\n9\n"}) // not committed
	id := job.NewID()
	ws, err := h.m.Prepare(t.Context(), Request{Job: id, Name: "a", Spec: h.spec(job.Copy), Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	h.write(ws.Dir, map[string]string{"f": "one\n2\n3\n4\n5\n6\n7\n8\n9\n", "keep": "kept"})
	a := h.kept("a", ws)
	if err := h.m.Remove(t.Context(), id, h.spec(job.Copy), RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	h.write(h.repo, map[string]string{"f": "1\n2\n3\n4\n5\n6\n7\n8\nnine\n"})
	ws = h.stacked("b", h.spec(job.Copy), []job.Patch{a})
	if got := h.read(ws.Dir, "f") + h.read(ws.Dir, "keep"); got != "one\n2\n3\n4\n5\n6\n7\n8\nnine\nkept" {
		t.Errorf("begins with %q", got)
	}
	h.write(h.repo, map[string]string{"f": "uno\n2\n3\n4\n"})
	_, err = h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "c", Spec: h.spec(job.Copy), Fresh: true, Patches: []job.Patch{a}, OnConflict: job.ResolveConflict})
	var clash *PatchesError
	if !errors.As(err, &clash) || !strings.Contains(err.Error(), "the patch of job a conflicts with the files that it is applied to in f") || !strings.Contains(err.Error(), "are missing: error: patch failed: f:1") {
		t.Errorf("got %v", err)
	}
}
