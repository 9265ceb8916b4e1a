package workspace

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestStash: a job that works in the user's folder shares the user's stash. What it
// takes from it, and what it leaves there, is told.
func TestStash(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n", "b": "1\n"})
	h.write(h.repo, map[string]string{"a": "the user's\n"})
	h.git(h.repo, "stash")
	users := h.git(h.repo, "rev-parse", "refs/stash")
	quiet := h.prepare(job.NewID(), h.spec(job.Copy), false)
	direct := h.prepare(job.NewID(), h.spec(job.Direct), false)
	notes := func(ws *Workspace) string { return strings.Join(h.collect(ws).Notes, "\n") }

	if got := notes(direct); got != "" {
		t.Errorf("nothing has happened: %q", got)
	}
	h.git(direct.Root, "stash", "pop")
	h.git(direct.Root, "checkout", "-q", ".")
	h.write(direct.Root, map[string]string{"b": "of the job\n"})
	h.git(direct.Root, "stash", "push", "-m", "later $(touch x)")
	own := h.git(h.repo, "rev-parse", "refs/stash")
	got := notes(direct)
	if !strings.Contains(got, "not part of the patch: ") || !strings.Contains(got, "later") || !strings.Contains(got, "git stash apply "+own) {
		t.Errorf("what a job leaves in the stash: %q", got)
	}
	if strings.Count(got, "was taken from the stash") != 1 || !strings.Contains(got, users) {
		t.Errorf("what a job takes from the stash: %q", got)
	}
	if got := notes(quiet); got != "" {
		t.Errorf("a copy: %q", got)
	}
	// What the notes say works.
	_, command, _ := strings.Cut(strings.Split(got, "\n")[0], "to put it back: git ")
	h.git(h.repo, strings.Fields(command)...)
	h.git(h.repo, "stash", "apply")
	if got := h.read(h.repo, "a"); got != "the user's\n" {
		t.Errorf("a is %q", got)
	}
}

// TestStashOfAWorktree: it is the job's own, and cannot be told from the user's side.
func TestStashOfAWorktree(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n", "b": "1\n"})
	h.write(h.repo, map[string]string{"a": "the user's\n"})
	h.git(h.repo, "stash")
	users := h.git(h.repo, "rev-parse", "refs/stash")
	ws := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	other := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	if got := h.git(ws.Root, "stash", "list"); got != "" {
		t.Errorf("the job sees the user's stash: %s", got)
	}
	h.write(ws.Root, map[string]string{"b": "of the job\n"})
	h.git(ws.Root, "stash", "push", "-m", "later $(touch x)")
	if got := h.git(other.Root, "stash", "list"); got != "" {
		t.Errorf("another job sees it: %s", got)
	}
	if got := h.git(h.repo, "stash", "list"); strings.Count(got, "\n") != 0 || h.git(h.repo, "rev-parse", "refs/stash") != users {
		t.Errorf("the user's stash is %s", got)
	}
	notes := strings.Join(h.collect(ws).Notes, "\n")
	_, command, ok := strings.Cut(notes, "to apply it: git ")
	if !ok || !strings.Contains(notes, "later") {
		t.Fatalf("notes %q", notes)
	}
	h.git(h.repo, strings.Fields(command)...)
	if got := h.read(ws.Root, "b"); got != "of the job\n" {
		t.Errorf("b is %q", got)
	}
	if got := h.collect(other).Notes; len(got) > 0 {
		t.Errorf("notes of the other job: %q", got)
	}
}
