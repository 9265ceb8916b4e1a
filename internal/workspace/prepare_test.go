package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/job"
)

func TestCheck(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", "sub/b": "2"})
	h.git(h.repo, "tag", "v1")
	dir := filepath.Dir(h.repo)
	mk := func(name string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain, empty, bare := mk("plain"), mk("empty"), mk("bare.git")
	h.git(empty, "init", "-q")
	h.git(dir, "clone", "-q", "--bare", h.repo, bare)
	linked := filepath.Join(dir, "linked")
	h.git(h.repo, "worktree", "add", "-q", "--detach", linked)
	mk("repo/new")
	h.write(dir, map[string]string{"file": ""})

	for _, c := range []struct {
		name string
		w    job.Workspace
		want string // part of the error, "" none
	}{
		{"repository", job.Workspace{Path: h.repo, Isolation: job.Worktree}, ""},
		{"subfolder", job.Workspace{Path: h.repo + "/sub", Isolation: job.Worktree}, ""},
		{"tag", job.Workspace{Path: h.repo, Isolation: job.Worktree, Base: "v1"}, ""},
		{"linked worktree", job.Workspace{Path: linked, Isolation: job.Worktree}, ""},
		{"bare", job.Workspace{Path: bare, Isolation: job.Worktree}, ""},
		{"none", job.Workspace{Isolation: job.NoWorkspace}, ""},
		{"plain copy", job.Workspace{Path: plain, Isolation: job.Copy}, ""},
		{"plain direct", job.Workspace{Path: plain, Isolation: job.Direct}, ""},
		{"plain", job.Workspace{Path: plain, Isolation: job.Worktree}, "is not a git repository; run `git init` and commit, or use isolation copy or direct"},
		{"no commit", job.Workspace{Path: empty, Isolation: job.Worktree}, "has no commit yet"},
		{"bad base", job.Workspace{Path: h.repo, Isolation: job.Worktree, Base: "nope"}, `"nope" is not a commit, branch or tag`},
		{"option as base", job.Workspace{Path: h.repo, Isolation: job.Worktree, Base: "--all"}, "cannot be a commit"},
		{"uncommitted subfolder", job.Workspace{Path: h.repo + "/new", Isolation: job.Worktree}, "folder new does not exist in HEAD"},
		{"inside .git", job.Workspace{Path: h.repo + "/.git", Isolation: job.Worktree}, "inside the .git folder"},
		{"missing", job.Workspace{Path: dir + "/nowhere", Isolation: job.Copy}, "does not exist"},
		{"file", job.Workspace{Path: dir + "/file", Isolation: job.Direct}, "is not a folder"},
		{"unknown", job.Workspace{Path: plain, Isolation: "magic"}, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := h.m.Check(t.Context(), c.w)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if c.want != "" || c.w.Isolation != job.Worktree {
				return
			}
			ws := h.prepare(job.NewID(), c.w, false)
			if info, err := os.Stat(ws.Dir); err != nil || !info.IsDir() {
				t.Errorf("no folder to work in: %v", err)
			}
			if got := changed(h.collect(ws)); got != "" {
				t.Errorf("untouched, but %s", got)
			}
		})
	}
}

func TestCheckWithoutGit(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := New(Config{}).Check(t.Context(), job.Workspace{Isolation: job.NoWorkspace}); err == nil || !strings.Contains(err.Error(), "install git") {
		t.Errorf("got %v", err)
	}
	for version, want := range map[string]bool{"2.31.9": true, "2.32.0": false, "2.39.5 (Apple Git-154)": false, "1.99": true, "3.0": false, "2": true} {
		if got := older(version, MinGit); got != want {
			t.Errorf("older(%q) = %v", version, got)
		}
	}
}

func TestWorktreeLeavesTheUserAlone(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", "sub/b": "2"})
	for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction"} {
		h.write(h.repo, map[string]string{".git/hooks/" + hook: "#!/bin/sh\ntouch " + h.repo + "/hooked\n"})
		os.Chmod(filepath.Join(h.repo, ".git/hooks", hook), 0o755)
	}
	h.write(h.repo, map[string]string{"a": "dirty", "untracked": "u"})
	h.git(h.repo, "add", "a")
	os.Remove(filepath.Join(h.repo, "hooked"))
	before, head, branch := state(t, h.repo, false), h.read(h.repo, ".git/HEAD"), h.git(h.repo, "rev-parse", "main")
	index := h.read(h.repo, ".git/index")
	id := job.NewID()
	ws := h.prepare(id, job.Workspace{Path: h.repo + "/sub", Isolation: job.Worktree}, false)
	if ws.Dir != filepath.Join(ws.Root, "sub") || h.read(ws.Dir, "b") != "2" || h.read(ws.Root, "a") != "1" {
		t.Errorf("workspace %+v is not the subfolder of a worktree at HEAD", ws)
	}
	if want := "agentsched/" + folderName(id, "job"); ws.Branch != want || h.git(ws.Root, "rev-parse", "--abbrev-ref", "HEAD") != want {
		t.Errorf("branch %s, want %s", ws.Branch, want)
	}
	if ws.Start != branch {
		t.Errorf("start %s, want %s", ws.Start, branch)
	}
	h.write(ws.Root, map[string]string{"sub/b": "changed", "new": "n"})
	if _, err := h.m.Diff(t.Context(), ws, new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	objects, _, _ := strings.Cut(h.git(h.repo, "count-objects"), " ")
	h.collect(ws)
	// The commit of its branch, two trees and two files.
	was, _ := strconv.Atoi(objects)
	if got := h.git(h.repo, "count-objects"); !strings.HasPrefix(got, strconv.Itoa(was+5)+" ") {
		t.Errorf("the repository holds %s, before %s", got, objects)
	}
	if got := state(t, h.repo, false); got != before || h.read(h.repo, ".git/HEAD") != head || h.read(h.repo, ".git/index") != index || h.git(h.repo, "rev-parse", "main") != branch {
		t.Errorf("the user's tree changed:\n%s\nwas\n%s", got, before)
	}
	if err := h.m.Remove(t.Context(), id, job.Workspace{}, RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(h.repo, "hooked")); err == nil {
		t.Error("a hook was run")
	}
	if got := h.git(h.repo, "worktree", "list"); strings.Count(got, "\n") != 0 {
		t.Errorf("worktrees left: %s", got)
	}
	if got := h.git(h.repo, "branch", "--list", "agentsched/*"); got != "" {
		t.Errorf("branch left: %s", got)
	}
}

func TestPrepareAgainAndFresh(t *testing.T) {
	for _, i := range []job.Isolation{job.Worktree, job.Copy, job.NoWorkspace} {
		t.Run(string(i), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"a": "1"})
			id, spec := job.NewID(), h.spec(i)
			ws := h.prepare(id, spec, false)
			start := state(t, ws.Root, false)
			h.write(ws.Root, map[string]string{"a": "2", "new": "n", "cache/x": "y"})
			if i == job.Worktree {
				h.commit(ws.Root, "work")
				h.git(ws.Root, "checkout", "-q", "-b", "elsewhere")
				h.write(ws.Root, map[string]string{".gitignore": "ignored", "ignored": "i"})
				h.write(ws.Root, map[string]string{".git/index.lock": ""})
				h.commit(h.repo, "main moves on") // a second attempt must start where the first did
			}
			kept := state(t, ws.Root, false)
			again := h.prepare(id, spec, false)
			if got := state(t, again.Root, false); got != kept || again.Start != ws.Start {
				t.Errorf("resumed:\n%s\nwant what was left:\n%s", got, kept)
			}
			if i == job.Worktree {
				h.git(again.Root, "add", "-A") // fails while the stale lock is there
			}
			fresh := h.prepare(id, spec, true)
			if got := state(t, fresh.Root, false); got != start || fresh.Start != ws.Start {
				t.Errorf("fresh:\n%s\nwant the start:\n%s", got, start)
			}
			if got := changed(h.collect(fresh)); got != "" {
				t.Errorf("fresh, but %s", got)
			}
		})
	}
}

func TestPrepareConcurrently(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", "b/c": "2"})
	var wg sync.WaitGroup
	spaces := make([]*Workspace, 8)
	for i := range spaces {
		wg.Go(func() {
			ws, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "job", Spec: h.spec(job.Worktree)})
			if err != nil {
				t.Error(err)
				return
			}
			spaces[i] = ws
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, ws := range spaces {
		if ws == nil {
			continue
		}
		seen[ws.Branch] = true
		if got := h.git(ws.Root, "status", "--porcelain"); got != "" {
			t.Errorf("%s is not clean: %s", ws.Root, got)
		}
	}
	if len(seen) != len(spaces) {
		t.Errorf("%d branches, want %d", len(seen), len(spaces))
	}
}

// TestPrepareAfterKill kills a process at each git command in turn, while the
// command itself goes on, and then prepares again.
func TestPrepareAfterKill(t *testing.T) {
	for _, c := range []struct {
		verb string
		i    job.Isolation
		min  int // kills, at least
	}{{"prepare", job.Worktree, 10}, {"fresh", job.Worktree, 10}, {"remove", job.Worktree, 2}, {"prepare", job.Copy, 5}} {
		t.Run(c.verb+" "+string(c.i), func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			for i := range 60 {
				files[fmt.Sprintf("d%d/f%d", i%7, i)] = strings.Repeat(fmt.Sprint(i), 100)
			}
			h := newHouse(t, files)
			killed := 0
			every := killEvery()
			if c.min < 5 {
				every = 1
			}
			for n := 1; ; n += every {
				id := job.NewID()
				if c.verb != "prepare" {
					ws := h.prepare(id, h.spec(c.i), false)
					h.write(ws.Root, map[string]string{"left": "by an agent"})
				}
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), dieVariable+"="+strings.Join([]string{fmt.Sprint(n), c.verb, h.root, h.repo, string(id), string(c.i)}, "|"))
				out, err := cmd.CombinedOutput()
				if err == nil {
					break
				}
				exit := (*exec.ExitError)(nil)
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("child %d: %v\n%s", n, err, out)
				}
				killed++
				ws := h.prepare(id, h.spec(c.i), n%2 == 0 || c.verb == "fresh")
				h.m.DropReplaced(t.Context(), id)
				if left, _ := filepath.Glob(filepath.Join(h.m.home(id), asidePrefix+"*")); len(left) > 0 {
					t.Errorf("killed at git command %d: %s are left", n, left)
				}
				if c.verb == "prepare" || c.verb == "fresh" || n%2 == 0 {
					if got := changed(h.collect(ws)); got != "" {
						t.Errorf("killed at git command %d: %s", n, got)
					}
				}
				if c.i == job.Worktree {
					h.git(ws.Root, "add", "-A")
					h.git(ws.Root, "-c", "core.hooksPath=/dev/null", "commit", "-q", "--allow-empty", "-m", "works")
				}
				if err := h.m.Remove(t.Context(), id, h.spec(c.i), RemoveOptions{Force: true}); err != nil {
					t.Fatalf("killed at git command %d: %v", n, err)
				}
				if _, err := os.Stat(h.m.home(id)); !os.IsNotExist(err) {
					t.Errorf("killed at git command %d: %v is left", n, h.m.home(id))
				}
			}
			if killed < c.min/every {
				t.Errorf("killed %d times, want several", killed)
			}
			if got := h.git(h.repo, "worktree", "list", "--porcelain"); strings.Count(got, "worktree ") > 2 {
				t.Errorf("worktrees left: %s", got)
			}
			h.git(h.repo, "fsck", "--strict")
		})
	}
}

// TestReplacedIsRemovedLater: neither a new workspace nor the job in it waits for the
// removal of the old one.
func TestReplacedIsRemovedLater(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	for _, i := range []job.Isolation{job.Worktree, job.Copy} {
		id := job.NewID()
		ws := h.prepare(id, h.spec(i), false)
		h.write(ws.Root, map[string]string{"old": "o", "shut/x": "x", "b/c/d/e/f/g": "deep"})
		if err := os.Chmod(filepath.Join(ws.Root, "shut"), 0o555); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(h.repo, filepath.Join(ws.Root, "link")); err != nil {
			t.Fatal(err)
		}
		left := func(name string) int {
			all, _ := filepath.Glob(filepath.Join(h.m.home(id), asidePrefix+"*", "*", name))
			return len(all)
		}
		again := h.prepare(id, h.spec(i), true)
		if h.read(again.Root, "a") != "1" || left("old") != 1 {
			t.Errorf("%s: %d old files are there", i, left("old"))
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		h.m.DropReplaced(over, id)
		if left("old") != 1 {
			t.Errorf("%s: it was removed after the end", i)
		}
		h.prepare(id, h.spec(i), true)
		h.m.DropReplaced(t.Context(), id)
		if all, _ := filepath.Glob(filepath.Join(h.m.home(id), asidePrefix+"*")); len(all) > 0 {
			t.Errorf("%s: %s are left", i, all)
		}
		if h.read(h.repo, "a") != "1" || h.read(again.Root, "a") != "1" {
			t.Errorf("%s: more was removed", i)
		}
	}
}

func TestWorktreeLosesItsGit(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	id := job.NewID()
	ws := h.prepare(id, h.spec(job.Worktree), false)
	own := filepath.Join(ws.Root, ".git")
	for name, ruin := range map[string]func(){
		"removed":  func() { os.RemoveAll(own) },
		"replaced": func() { os.RemoveAll(own); h.git(ws.Root, "init", "-q"); h.commit(ws.Root, "mine") },
	} {
		ruin()
		h.write(ws.Root, map[string]string{"a": name, "new": name})
		if got := changed(h.collect(ws)); got != "modified a, added new" && got != "added new, modified a" {
			t.Errorf("%s: collected %q", name, got)
		}
		again := h.prepare(id, h.spec(job.Worktree), false)
		if h.read(again.Root, "a") != name || h.git(again.Root, "rev-parse", "--abbrev-ref", "HEAD") != ws.Branch {
			t.Errorf("%s: its git was not made again", name)
		}
	}
	away := h.repo + "-away"
	if err := os.Rename(h.repo, away); err != nil {
		t.Fatal(err)
	}
	if _, err := h.m.Prepare(t.Context(), Request{Job: id, Name: "job", Spec: h.spec(job.Worktree)}); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("got %v", err)
	}
	if err := os.Rename(away, h.repo); err != nil {
		t.Fatal(err)
	}
	if got := changed(h.collect(ws)); !strings.Contains(got, "added new") {
		t.Errorf("collected %q", got)
	}
	h.prepare(id, h.spec(job.Worktree), true)
}

func TestBranchNamesTaken(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	h.git(h.repo, "branch", "agentsched")
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	if ws.Branch != "" || h.git(ws.Root, "rev-parse", "--abbrev-ref", "HEAD") != "HEAD" {
		t.Errorf("branch %q, want a detached worktree", ws.Branch)
	}
}

func TestSmudgeErrorIsSaid(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1", ".gitattributes": "a filter=broken\n"})
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(t.TempDir(), "gitconfig"))
	h.git(h.repo, "config", "--global", "filter.broken.smudge", "false")
	h.git(h.repo, "config", "--global", "filter.broken.required", "true")
	_, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "job", Spec: h.spec(job.Worktree)})
	if err == nil || !strings.Contains(err.Error(), "smudge filter broken failed") {
		t.Errorf("got %v", err)
	}
}

func TestPrepareCancelled(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	cause := errors.New("stopped by the test")
	for _, i := range []job.Isolation{job.Worktree, job.Copy, job.Direct, job.NoWorkspace} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if _, err := h.m.Prepare(ctx, Request{Job: job.NewID(), Name: "job", Spec: h.spec(i)}); !errors.Is(err, cause) {
			t.Errorf("%s: got %v, want the cause", i, err)
		}
	}
	for _, id := range []job.ID{"", "..", "a/b", ".hidden"} {
		if _, err := h.m.Prepare(t.Context(), Request{Job: id, Name: "job", Spec: h.spec(job.NoWorkspace)}); err == nil {
			t.Errorf("id %q was taken", id)
		}
	}
}

func TestRepositoryOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	h := newHouse(t, map[string]string{"a": "1"})
	for _, p := range []string{h.repo, h.repo + "/.git"} {
		if err := os.Chown(p, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.m.Check(t.Context(), h.spec(job.Worktree)); err == nil || !strings.Contains(err.Error(), "git config --global --add safe.directory") {
		t.Errorf("got %v", err)
	}
}
