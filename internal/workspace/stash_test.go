package workspace

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestStash: worktrees share one stash. What a job takes from it, and what it leaves
// there, is told.
func TestStash(t *testing.T) {
	h := newHouse(t, map[string]string{"a": "1\n", "b": "1\n"})
	h.write(h.repo, map[string]string{"a": "the user's\n"})
	h.git(h.repo, "stash")
	users := h.git(h.repo, "rev-parse", "refs/stash")
	leaves := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	h.write(leaves.Root, map[string]string{"b": "of the first\n"})
	h.git(leaves.Root, "stash", "push", "-m", "later $(touch x)")
	first := h.git(h.repo, "rev-parse", "refs/stash")
	takes := h.prepare(job.NewID(), h.spec(job.Worktree), false)
	quiet := h.prepare(job.NewID(), h.spec(job.Copy), false)
	notes := func(ws *Workspace) string { return strings.Join(h.collect(ws).Notes, "\n") }

	if got := notes(leaves); !strings.Contains(got, "not part of the patch: ") || !strings.Contains(got, "later") || !strings.Contains(got, "git stash apply "+first) {
		t.Errorf("what a job leaves in the stash: %q", got)
	}
	if got := notes(takes); got != "" {
		t.Errorf("nothing has happened: %q", got)
	}
	h.git(takes.Root, "stash", "pop")
	h.git(takes.Root, "checkout", "-q", ".")
	h.git(takes.Root, "stash", "pop")
	if got := notes(takes); strings.Count(got, "was taken from the stash") != 2 || !strings.Contains(got, first) || !strings.Contains(got, users) {
		t.Errorf("what a job takes from the stash: %q", got)
	}
	if got := notes(quiet); got != "" {
		t.Errorf("a copy: %q", got)
	}
	if got := notes(leaves); strings.Count(got, "was taken") != 1 || !strings.Contains(got, users) {
		t.Errorf("what another job took: %q", got)
	}
	// What the notes say works.
	line, _, _ := strings.Cut(notes(takes), "\n")
	_, command, _ := strings.Cut(line, "to put it back: git ")
	h.git(h.repo, strings.Fields(command)...)
	h.git(h.repo, "stash", "apply")
	if got := h.read(h.repo, "a"); got != "the user's\n" {
		t.Errorf("a is %q", got)
	}
}
