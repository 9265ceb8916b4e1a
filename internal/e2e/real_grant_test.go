package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// TestRealReadOnly: a job that may only read changes nothing, whatever the
// model wants.
func TestRealReadOnly(t *testing.T) {
	eachCLI(t, "codex claude opencode", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("sly", scriptmodel.Play(scriptmodel.Edit("sly.txt", "x"), scriptmodel.Say("I tried.")))
		before := b.mine()
		r := b.start("run", b.jobs(b.task("sly", kind, "sly", obj{"capabilities": []string{"read"}, "limits": obj{"max_attempts": 1}})))
		<-r.ended // whether a denied tool is a failure is the CLI's to say
		o := b.last(b.show("sly"))
		if len(o.Files) > 0 {
			r.fatalf("a job that may only read has changed %v", o.Files)
		}
		if len(b.asked("sly")) == 0 {
			r.fatalf("the model was not asked: the test shows nothing")
		}
		if after := b.mine(); after != before {
			b.fatalf("the run changed the user's repository")
		}
		b.noProcess()
	})
}

// TestRealAllowCommands: what the patterns do not allow does not run, and what they
// allow does.
func TestRealAllowCommands(t *testing.T) {
	eachCLI(t, "codex claude opencode", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("mixed", scriptmodel.Play(
			scriptmodel.Run("touch denied.txt"),
			scriptmodel.Run("echo fine && touch denied-too.txt"),
			scriptmodel.Run("git status --short"),
			scriptmodel.Say("Done.")))
		r := b.start("run", b.jobs(b.task("mixed", kind, "mixed", obj{
			"capabilities": []string{"read", "edit", "run_commands"}, "allow_commands": []string{"git status *", "echo *"}, "limits": obj{"max_attempts": 2}})))
		<-r.ended
		o := b.last(b.show("mixed"))
		if len(o.Files) > 0 {
			r.fatalf("a denied command ran: %v", o.Files)
		}
		if !slices.ContainsFunc(o.Commands, func(c job.CommandRun) bool { return strings.Contains(c.Command, "git status") && c.ExitCode == 0 }) {
			r.fatalf("the allowed command did not run: %s", asJSON(t, o))
		}
		b.noProcess()
	})
}
