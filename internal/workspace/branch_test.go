package workspace

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// patched returns the tree that the patch makes of the commit from.
func (h *house) patched(from, patch string) string {
	h.t.Helper()
	clone := filepath.Join(h.t.TempDir(), "clone")
	h.git(h.repo, "clone", "-q", "--no-checkout", h.repo, clone)
	h.git(clone, "-c", "core.hooksPath=/dev/null", "checkout", "-q", "--detach", from)
	h.git(clone, "apply", "--index", patch)
	return h.git(clone, "write-tree")
}

// TestBranchHoldsTheWork merges and pushes the branch of a job, in a repository
// whose hooks, keys and filters must not take part in its commit.
func TestBranchHoldsTheWork(t *testing.T) {
	h, c := newHouse(t, map[string]string{"a.txt": "1\n", "gone": "g", "sub/b": "b\n", ".gitignore": "*.log\n"}), newCanaries(t)
	c.plant(h, h.repo)
	start := h.git(h.repo, "rev-parse", "main")
	ws, err := h.m.Prepare(t.Context(), Request{Job: job.NewID(), Name: "fix", Spec: h.spec(job.Worktree), Title: "Mend \x1b[31mthe\u202e\tparser, " + strings.Repeat("long ", 40)})
	if err != nil {
		t.Fatal(err)
	}
	h.write(ws.Root, map[string]string{"a.txt": "2\n", "new/c": "c\n", "out.log": "ignored", "exec": "#!/bin/sh\n"})
	os.Remove(filepath.Join(ws.Root, "gone"))
	os.Chmod(filepath.Join(ws.Root, "exec"), 0o755)
	os.Symlink("a.txt", filepath.Join(ws.Root, "link"))
	got := h.collect(ws)
	if len(got.Notes) > 1 || got.Commit == nil || *got.Commit != (job.Commit{Branch: ws.Branch, ID: got.Commit.ID, Before: start}) {
		t.Fatalf("commit %+v, notes %q", got.Commit, got.Notes)
	}
	if ran := c.ran(); len(ran) > 0 {
		t.Errorf("these ran: %s", ran)
	}
	// What follows is the user's own git.
	h.git(h.repo, "config", "core.hooksPath", "/dev/null")
	h.git(h.repo, "config", "core.fsmonitor", "false")
	for _, key := range []string{"uploadpack.packObjectsHook", "commit.gpgSign", "merge.default", "filter.evil.clean", "filter.evil.smudge", "filter.long.process", "includeIf.onbranch:agentsched/**.path"} {
		h.git(h.repo, "config", "--unset", key)
	}
	if got, want := h.git(h.repo, "rev-parse", ws.Branch+"^{tree}"), h.patched(start, got.Patch); got != want {
		t.Errorf("the branch has the tree %s, the patch makes %s", got, want)
	}
	want := "agentsched <agentsched@localhost> agentsched <agentsched@localhost> " + start
	if got := h.git(h.repo, "log", "-1", "--format=%an <%ae> %cn <%ce> %P", ws.Branch); got != want {
		t.Errorf("commit by %s, want %s", got, want)
	}
	message := h.git(h.repo, "log", "-1", "--format=%B", ws.Branch)
	subject, _, _ := strings.Cut(message, "\n")
	if !strings.HasPrefix(subject, "fix: Mend [31mthe parser, long") || !strings.HasSuffix(subject, "…") || len([]rune(subject)) > maxSubject || !strings.Contains(message, "Agentsched-Job: "+string(ws.Job)) {
		t.Errorf("message %q", message)
	}
	if got := h.git(ws.Root, "rev-parse", "HEAD", "refs/heads/"+ws.Branch); got != start+"\n"+start {
		t.Errorf("the agent's own git is at %s", got)
	}
	origin := filepath.Join(t.TempDir(), "origin.git")
	h.git(h.repo, "init", "-q", "--bare", origin)
	h.git(h.repo, "push", "-q", origin, ws.Branch)
	if got := h.git(origin, "rev-parse", "refs/heads/"+ws.Branch); got != h.git(h.repo, "rev-parse", ws.Branch) {
		t.Errorf("pushed %s", got)
	}
	h.git(origin, "fsck", "--strict")
	h.write(h.repo, map[string]string{"sub/b": "the user's\n"})
	h.commit(h.repo, "meanwhile")
	h.git(h.repo, "merge", "-q", "-m", "merge", ws.Branch)
	if h.read(h.repo, "a.txt")+h.read(h.repo, "new/c")+h.read(h.repo, "sub/b") != "2\nc\nthe user's\n" {
		t.Error("the merge lacks something")
	}
	h.git(h.repo, "fsck", "--strict")
}

// TestBranchManyFiles has more objects than are kept one by one.
func TestBranchManyFiles(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	for i := range 120 {
		h.write(ws.Root, map[string]string{filepath.Join("d", string(rune('a'+i%26)), string(rune('a'+i/26))): strings.Repeat("x", i)})
	}
	c := h.collect(ws)
	if len(c.Notes) > 0 || h.git(h.repo, "rev-parse", ws.Branch+"^{tree}") != h.patched(ws.Start, c.Patch) {
		t.Errorf("commit %+v, notes %q", c.Commit, c.Notes)
	}
	os.RemoveAll(h.root) // nothing is borrowed from there
	h.git(h.repo, "worktree", "prune")
	h.git(h.repo, "fsck", "--strict")
	h.git(h.repo, "merge", "-q", ws.Branch)
}

// TestBranchFollowsOn lets a session work on after its work was committed: it
// finds what it had staged, and its next commit is a child of the last.
func TestBranchFollowsOn(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n", "b": "1\n"})
	id := job.NewID()
	ws := h.prepare(id, h.spec(job.Worktree), false)
	h.write(ws.Root, map[string]string{"mine": "by the agent\n"})
	own := h.commit(ws.Root, "the agent's own")
	h.write(ws.Root, map[string]string{"a": "2\n", "new": "n\n"})
	h.git(ws.Root, "add", "a")
	status := h.git(ws.Root, "status", "--porcelain")
	first := h.collect(ws).Commit
	if first == nil || first.Before != own || h.git(h.repo, "rev-parse", ws.Branch, ws.Branch+"^") != first.ID+"\n"+own {
		t.Fatalf("%+v, want a child of %s", first, own)
	}
	if again := h.collect(ws).Commit; again == nil || *again != *first {
		t.Errorf("collected again: %+v, want %+v", again, first)
	}

	h.prepare(id, h.spec(job.Worktree), false)
	if got := h.git(ws.Root, "status", "--porcelain"); got != status || h.git(ws.Root, "rev-parse", "HEAD") != own {
		t.Errorf("the agent finds\n%s\nand left\n%s", got, status)
	}
	if same := h.collect(ws).Commit; same == nil || same.ID != first.ID || h.git(h.repo, "rev-parse", ws.Branch) != first.ID {
		t.Errorf("nothing was done, and the branch is at %+v, want %s", same, first.ID)
	}

	h.prepare(id, h.spec(job.Worktree), false)
	h.write(ws.Root, map[string]string{"b": "2\n"})
	second := h.collect(ws)
	if got := h.git(h.repo, "rev-parse", ws.Branch+"^"); got != first.ID {
		t.Errorf("the second commit is on %s, want %s", got, first.ID)
	}

	h.prepare(id, h.spec(job.Worktree), false)
	more := h.commit(ws.Root, "all of it, and more")
	third := h.collect(ws)
	parents := strings.Fields(h.git(h.repo, "log", "-1", "--format=%P", ws.Branch))
	if third.Commit.ID != more && (len(parents) != 2 || parents[0] != more || parents[1] != second.Commit.ID) {
		t.Errorf("the third commit has the parents %s", parents)
	}

	// The user goes on in the worktree: that is left alone.
	h.write(ws.Root, map[string]string{"a": "the user's\n"})
	users := h.commit(ws.Root, "the user's")
	h.prepare(id, h.spec(job.Worktree), false)
	if got := h.git(ws.Root, "rev-parse", "HEAD"); got != users || h.git(ws.Root, "status", "--porcelain") != "" {
		t.Errorf("HEAD is %s, want the user's %s", got, users)
	}
	last := h.collect(ws)
	if got := h.git(h.repo, "rev-parse", ws.Branch+"^{tree}"); got != h.patched(ws.Start, last.Patch) {
		t.Error("the branch is not what the patch makes")
	}

	// Made anew, it begins anew.
	h.prepare(id, h.spec(job.Worktree), true)
	if got := h.git(ws.Root, "rev-parse", ws.Branch); got != ws.Start || h.git(h.repo, "branch", "--list", ws.Branch) != "" || h.collect(ws).Commit != nil {
		t.Errorf("the fresh branch is at %s, want %s", got, ws.Start)
	}
}

// TestBranchOfAnotherShape has agents that did something else to their branch.
func TestBranchOfAnotherShape(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(h *house, ws *Workspace)
		parent  string // of the branch's tip; "" is that there is none
		note    string
		commits bool
	}{
		"deleted": {func(h *house, ws *Workspace) {
			h.git(ws.Root, "checkout", "-q", "--orphan", "new")
			h.git(ws.Root, "branch", "-q", "-D", ws.Branch)
		}, "main", "", true},
		"elsewhere": {func(h *house, ws *Workspace) { h.git(ws.Root, "checkout", "-q", "-b", "feature") }, "main", "", true},
		"all committed": {func(h *house, ws *Workspace) {
			h.write(ws.Root, map[string]string{"work": "w"})
			h.commit(ws.Root, "all")
		}, "main", "", true},
		"symbolic": {func(h *house, ws *Workspace) {
			h.git(h.repo, "symbolic-ref", "refs/heads/"+ws.Branch, "refs/heads/main")
		}, "main", "", true},
		"a link": {func(h *house, ws *Workspace) {
			ref := filepath.Join(h.repo, ".git/refs/heads", ws.Branch)
			h.write(h.out, map[string]string{"ref": h.git(h.repo, "rev-parse", "main") + "\n"})
			os.MkdirAll(filepath.Dir(ref), 0o755)
			os.Symlink(filepath.Join(h.out, "ref"), ref)
		}, "", "is not a file", false},
		"a linked log": {func(h *house, ws *Workspace) {
			log := filepath.Join(h.repo, ".git/logs/refs/heads/agentsched")
			os.RemoveAll(log)
			os.Symlink(h.out, log)
		}, "", "symbolic link", false},
		"a tag": {func(h *house, ws *Workspace) {
			h.git(h.repo, "tag", "-a", "-m", "t", "v1")
			h.write(h.repo, map[string]string{".git/refs/heads/" + ws.Branch: h.git(h.repo, "rev-parse", "v1") + "\n"})
		}, "", "points to a tag", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, map[string]string{"a": "1"})
			os.MkdirAll(h.out, 0o755)
			ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
			main := h.git(h.repo, "rev-parse", "main")
			c.do(h, ws)
			h.write(ws.Root, map[string]string{"work": "w"})
			before := state(t, h.out, false)
			got := h.collect(ws)
			if notes := strings.Join(got.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" || (got.Commit != nil) != c.commits {
				t.Errorf("commit %+v, notes %q", got.Commit, got.Notes)
			}
			if got.Patch == "" {
				t.Error("no patch")
			}
			if h.git(h.repo, "rev-parse", "main") != main {
				t.Error("the user's branch was moved")
			}
			if c.parent == "" {
				os.Remove(got.Patch)
				if now := state(t, h.out, false); now != before {
					t.Errorf("written outside of the repository:\n%s", now)
				}
				return
			}
			if parent := h.git(h.repo, "rev-parse", "refs/heads/"+ws.Branch+"^"); parent != h.git(h.repo, "rev-parse", c.parent) {
				t.Errorf("the parent is %s", parent)
			}
			if h.git(h.repo, "rev-parse", "refs/heads/"+ws.Branch+"^{tree}") != h.patched(main, got.Patch) {
				t.Error("the branch is not what the patch makes")
			}
		})
	}
}

// TestBranchMovedMeanwhile has somebody move the branch while the commit is made.
func TestBranchMovedMeanwhile(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1"})
	other := h.commit(h.repo, "other")
	ws := h.prepare(job.NewID(), job.Workspace{Path: h.repo, Isolation: job.Worktree, Base: "HEAD^0"}, false)
	users := h.git(h.repo, "commit-tree", "-m", "the user's", "-p", other, "HEAD^{tree}")
	h.write(ws.Root, map[string]string{"a": "2"})
	h.m.run = func(_ context.Context, cmd *exec.Cmd) error {
		if strings.Contains(strings.Join(cmd.Args, " "), " update-ref ") {
			h.git(h.repo, "update-ref", "refs/heads/"+ws.Branch, users)
		}
		return cmd.Run()
	}
	c := h.collect(ws)
	if c.Commit != nil || c.Patch == "" || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "move the branch: ") || h.git(h.repo, "rev-parse", ws.Branch) != users {
		t.Errorf("commit %+v, notes %q", c.Commit, c.Notes)
	}
	h.m.run = func(_ context.Context, cmd *exec.Cmd) error { return cmd.Run() }
	if c := h.collect(ws); c.Commit == nil || c.Commit.Before != users || len(c.Notes) > 0 || h.git(h.repo, "log", "-1", "--format=%P", ws.Branch) != users {
		t.Errorf("then: commit %+v, notes %q", c.Commit, c.Notes)
	}
}

// TestBranchAfterKill kills a process at each git command of Collect in turn.
func TestBranchAfterKill(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n", "b": "1\n"})
	main := h.git(h.repo, "rev-parse", "main")
	killed := 0
	for n := 1; ; n += killEvery() {
		id := job.NewID()
		ws := h.prepare(id, h.spec(job.Worktree), false)
		h.write(ws.Root, map[string]string{"a": "2\n", "new": "n\n"})
		h.git(ws.Root, "add", "a")
		status := h.git(ws.Root, "status", "--porcelain")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), dieVariable+"="+strings.Join([]string{strconv.Itoa(n), "collect", h.root, h.repo, string(id), string(job.Worktree), h.out}, "|"))
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("child %d: %v\n%s", n, err, out)
		}
		killed++
		resume := n%2 == 0
		if resume {
			h.prepare(id, h.spec(job.Worktree), false)
			if got := h.git(ws.Root, "status", "--porcelain"); got != status {
				t.Errorf("killed at git command %d: the agent finds\n%s\nand left\n%s", n, got, status)
			}
		}
		c := h.collect(ws)
		if c.Commit == nil || len(c.Notes) > 0 || h.git(h.repo, "rev-parse", ws.Branch+"^{tree}") != h.patched(main, c.Patch) {
			t.Errorf("killed at git command %d: %+v, notes %q", n, c.Commit, c.Notes)
		}
		if got := h.git(h.repo, "log", "--format=%an", ws.Branch); got != "agentsched\nAnn" {
			t.Errorf("killed at git command %d: commits of\n%s", n, got)
		}
		if got := h.git(ws.Root, "status", "--porcelain"); got != status {
			t.Errorf("killed at git command %d: status\n%s", n, got)
		}
	}
	if killed < 12/killEvery() {
		t.Errorf("killed %d times, want several", killed)
	}
	h.git(h.repo, "fsck", "--strict")
}
