package e2e

// Workspaces that travel: worktrees of a repository that a job names by its address, and of a
// folder that only the submitter's host has.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestRepository: each job begins with the base as it is then; a resumed workspace stays
// where it was, and the repository itself gets nothing.
func TestRepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.git("branch", "v1")
	r := b.serve()
	repo := func(address, base string) obj {
		w := obj{"repo": address}
		if base != "" {
			w["base"] = base
		}
		return obj{"workspace": w}
	}
	script := "cat README.md; git log --oneline | wc -l; echo more > new; git rev-parse --abbrev-ref HEAD"
	b.submit(b.jobsOf("website", "one.yaml", with(shell("one", nil, script, nil), repo("file://"+b.repo, "main"))))
	r.end("one", job.RunCompleted)
	b.write(filepath.Join(b.repo, "README.md"), "it has moved\n")
	b.git("commit", "-qam", "second")
	b.submit(b.jobsOf("website", "two.yaml",
		with(shell("two", nil, script, nil), repo("file://"+b.repo, "main")),
		with(shell("old", nil, script, nil), repo(b.repo, "v1")),
		with(shell("none", nil, "true", nil), repo(b.repo, "v2")),
	))
	r.end("two", job.RunCompleted)
	r.end("old", job.RunCompleted)
	r.end("none", job.RunFailed)
	for name, want := range map[string]string{"one": "a repository\n1\n", "two": "it has moved\n2\n", "old": "a repository\n1\n"} {
		o := b.last(b.show(name))
		if !strings.HasPrefix(o.Answer, want) || !strings.Contains(o.Answer, "agentsched/"+name) {
			t.Errorf("%s printed %q, want %q and its branch", name, o.Answer, want)
		}
		if len(o.Files) != 1 || o.Files[0].Path != "new" || o.Commit == nil {
			t.Errorf("%s has changed %+v, with the commit %v", name, o.Files, o.Commit)
		}
	}
	if j := b.show("none"); j.Job.DeadLetter == "" || b.last(j).Class != job.Config || !strings.Contains(b.last(j).Message, `no branch or tag "v2"`) {
		t.Errorf("a base that does not exist: %+v", b.last(j))
	}
	if out := b.git("for-each-ref", "--format=%(refname)"); strings.Contains(out, "agentsched") {
		t.Errorf("the repository has got refs:\n%s", out)
	}
	if mirrors, _ := filepath.Glob(filepath.Join(b.state, "mirrors", "*", "HEAD")); len(mirrors) != 2 { // one for each address
		t.Errorf("mirrors are %v", mirrors)
	}
	// Neither the scheduler's own folder nor one that is none is taken.
	for address, want := range map[string]string{b.state: "scheduler's own folder", filepath.Join(b.dir, "nothing"): "does not exist"} {
		if _, errs, code := b.trySubmit(b.jobsOf("website", "bad.yaml", with(shell("bad", nil, "true", nil), repo(address, "")))); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %s, want %q", address, code, errs, want)
		}
	}
	r.stop()
	if _, errs, code := b.command("clean", "--force", "one"); code != 0 {
		t.Errorf("clean: %s", errs)
	}
	if _, err := os.Stat(filepath.Join(b.state, "work", string(b.show("one").Job.ID))); !os.IsNotExist(err) {
		t.Errorf("the workspace is still there: %v", err)
	}
}
