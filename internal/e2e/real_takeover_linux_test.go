package e2e

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/terminaltest"
	"github.com/agentsched/agentsched/job"
)

// hands are how a person uses each CLI: what it shows when it has the session, and how one leaves it.
var hands = map[job.WorkerKind]struct{ asks, leave string }{
	"claude":   {leave: "\x03\x03"},
	"codex":    {asks: "Open restricted", leave: "\x03\x03"},
	"opencode": {leave: "\x03"},
}

// TestRealTakeover: a person takes a job over whose agent works, sees its session in its own program, in the job's sandbox, asks
// the model, leaves and hands the job back. Its next attempt goes on in the session and folder.
func TestRealTakeover(t *testing.T) {
	eachCLI(t, "claude codex opencode", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		nap := b.nap()
		b.play("hands", scriptmodel.Play(
			scriptmodel.Edit("step-1.txt", "before"), scriptmodel.Run("sleep "+nap), scriptmodel.Say("Never reached."),
		).Resuming(scriptmodel.Say("Said by hand."), scriptmodel.Edit("step-2.txt", "after"), scriptmodel.Say("Resumed and done.")))
		r := b.start("run", b.jobs(b.task("hands", kind, "hands", obj{"instructions": "Never mind the gap."})))
		a := asleep{run: r, naps: []string{nap}}
		if !a.asleep() {
			a.fatalf("the agent's command does not run")
		}
		x := terminaltest.Open(t, 160, 50)
		defer x.Close()
		cmd := exec.Command(schedulerProgram(), "--state", b.state, "--config", b.configFile(), "takeover", "hands")
		cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(b.env, "TERM=xterm-256color"), b.dir, x.Slave, x.Slave, x.Slave
		cmd.SysProcAttr = b.as(&syscall.SysProcAttr{Setsid: true, Setctty: true})
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		x.Watch()
		time.AfterFunc(30*time.Second, func() { t.Log("SCREEN\n" + x.Shown()) })
		if asks := hands[kind].asks; asks != "" {
			x.AwaitShown(asks)
			x.Press("\r")
		}
		x.AwaitShown("Never mind the gap.")
		t.Logf("shown")
		x.Press("hello\r")
		x.AwaitShown("Said by hand")
		x.Press(hands[kind].leave)
		err := cmd.Wait()
		t.Logf("left: %v", err)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if x.Settings() != x.Initial {
			t.Error("the terminal is not as it was")
		}
		if screen := x.Screen(); !strings.Contains(screen, "is in your hands") {
			t.Errorf("the screen: %q", screen)
		}
		if left, err := proc.Alive(b.instance() + "/exec/"); err != nil || len(left) > 0 {
			t.Errorf("left alive: %v, %v", left, err)
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
		t.Log(asJSON(t, b.model.Requests()))
	})
}
