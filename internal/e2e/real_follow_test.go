package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// TestRealFollowUp: what each CLI is told when its job has ended, and after a restart, goes on with its session in its worktree;
// a fork goes on with a copy of it in another one.
func TestRealFollowUp(t *testing.T) {
	eachCLI(t, "codex claude opencode", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("talk", scriptmodel.Play(
			scriptmodel.Edit("one.txt", "one\n"), scriptmodel.Say("Done."),
		).Resuming(scriptmodel.Run("cat one.txt >> two.txt"), scriptmodel.Say("Went on.")))
		do := func(args ...string) {
			t.Helper()
			if out, errs, code := b.command(args...); code != 0 {
				b.fatalf("%v: exit %d\n%s%s", args, code, out, errs)
			}
		}
		r := b.serve()
		b.submit(b.jobs(b.task("talk", kind, "talk", nil)))
		do("wait", "talk")
		first := b.show("talk")
		do("apply", "talk")

		for n, text := range []string{"one\n", "one\none\n"} {
			do("tell", "talk", "Go on, please.")
			do("wait", "talk")
			j := b.show("talk")
			o := b.last(j)
			if j.Job.ID == first.Job.ID || j.Job.Folder != first.Job.ID || len(j.Attempts) != 1 || o.Answer != "Went on." {
				b.fatalf("follow-up %d: %s", n+1, asJSON(t, j))
			}
			if o.Session == "" || kind != "claude" && o.Session != b.last(first).Session {
				b.fatalf("it has session %q, want %q", o.Session, b.last(first).Session)
			}
			clone := b.applied(o)
			b.content(filepath.Join(clone, "one.txt"), "one\n")
			b.content(filepath.Join(clone, "two.txt"), text)
			do("apply", "talk")
			b.content(filepath.Join(b.repo, "two.txt"), text)
			if n == 0 {
				r.stop()
				r = b.serve()
			}
		}

		if kind == "opencode" { // its sessions are bound to their folders
			if _, errs, code := b.command("fork", "talk", "Go on here, too."); code != 2 || !strings.Contains(errs, "those that can are claude, codex") {
				b.fatalf("fork: exit %d, %s", code, errs)
			}
			r.stop()
			b.noProcess()
			return
		}
		do("fork", "talk", "Go on here, too.", "--name", "other")
		do("wait", "other")
		j := b.show("other")
		o := b.last(j)
		if j.Job.ForkedFrom == "" || j.Job.Folder != "" || o.Answer != "Went on." || o.Session == "" || o.Session == b.last(b.show("talk")).Session {
			b.fatalf("fork: %s", asJSON(t, j))
		}
		b.content(filepath.Join(b.applied(o), "two.txt"), "one\none\none\n")
		b.content(filepath.Join(b.repo, "two.txt"), "one\none\n")
		if _, err := os.Stat(filepath.Join(b.state, "work", string(j.Job.ID))); err != nil {
			b.fatalf("the fork has no folder of its own: %v", err)
		}
		r.stop()
		b.noProcess()
	})
}
