package e2e

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// hands are how a person uses each CLI: what it asks first, and by which keys one leaves it.
var hands = map[job.WorkerKind]struct{ asks, leave string }{
	"claude":   {leave: "\x03\x03"},
	"codex":    {asks: "Open restricted", leave: "\x04"},
	"opencode": {leave: "\x03"},
}

// TestRealTakeover: a person takes a job over whose agent works, sees its session in its own program, in the job's sandbox, asks
// the model, leaves and hands the job back. Its next attempt goes on in the session and folder.
func TestRealTakeover(t *testing.T) {
	eachCLI(t, "claude codex", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		nap := b.nap()
		b.play("hands", scriptmodel.Play(
			scriptmodel.Edit("step-1.txt", "before"), scriptmodel.Run("sleep "+nap), scriptmodel.Say("Never reached."),
		).Resuming(scriptmodel.Say("Said by the model.")))
		r := b.start("run", b.jobs(b.task("hands", kind, "hands", obj{"instructions": "Never mind the gap."})))
		a := asleep{run: r, naps: []string{nap}}
		if !a.asleep() {
			a.fatalf("the agent's command does not run")
		}
		x := b.takeOver("hands")
		if asks := hands[kind].asks; asks != "" {
			x.Dismiss(asks, "\r")
		}
		x.AwaitShown("Never mind the gap.")
		x.Press("hello")
		x.AwaitShown("hello")
		x.Press("\r") // by itself: with what comes in one piece it would be a new line of a text that was pasted
		x.AwaitShown("Said by the model.")
		x.leave(hands[kind].leave)
		x.left()
		if screen := x.Screen(); !strings.Contains(screen, "is in your hands") {
			t.Errorf("the screen: %q", screen)
		}
		if out, errs, code := b.command("handback", "hands", "Go on."); code != 0 {
			b.fatalf("handback: exit code %d\n%s%s", code, out, errs)
		}
		r.exit(0)
		b.noProcess()
		j := b.show("hands")
		if o := b.last(j); len(j.Attempts) != 2 || !o.Succeeded() || j.Job.Counted != 1 || j.Attempts[0].Session != j.Attempts[1].Session {
			b.fatalf("want a second attempt of the session: %s", asJSON(t, j))
		}
		b.content(b.applied(b.last(j))+"/step-1.txt", "before")
	})
}
