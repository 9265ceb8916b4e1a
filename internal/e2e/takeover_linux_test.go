package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/terminaltest"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// seat is a terminal in which somebody has taken a job over.
type seat struct {
	*terminaltest.Terminal
	b     *bench
	cmd   *exec.Cmd
	ended chan struct{}
}

// takeOver starts `scheduler takeover` in a terminal.
func (b *bench) takeOver(name string) *seat {
	b.t.Helper()
	x := &seat{Terminal: terminaltest.Open(b.t, 160, 50), b: b, ended: make(chan struct{})}
	x.cmd = exec.Command(schedulerProgram(), "--state", b.state, "--config", b.configFile(), "takeover", name)
	x.cmd.Env, x.cmd.Dir, x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = append(b.env, "TERM=xterm-256color", "SHELL=/bin/sh"), b.dir, x.Slave, x.Slave, x.Slave
	x.cmd.SysProcAttr = b.as(&syscall.SysProcAttr{Setsid: true, Setctty: true})
	if err := x.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer close(x.ended)
		x.cmd.Wait() //nolint:errcheck // what it ends with is the program's
	}()
	b.t.Cleanup(func() { // a test that fails leaves it running
		x.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-x.ended
	})
	x.Answers = true
	x.Watch()
	return x
}

// ready waits until a shell reads what is typed.
func (x *seat) ready() {
	x.b.t.Helper()
	x.Press("echo re''ady\r")
	x.AwaitShown("ready")
}

// leave types the key by which one leaves the program, again if that only ended what it did.
func (x *seat) leave(key string) {
	x.b.t.Helper()
	again, late := time.NewTicker(time.Second), testrun.After(x.b.t)
	defer again.Stop()
	for x.Press(key); ; x.Press(key) {
		select {
		case <-x.ended:
			return
		case <-late:
			return // which left tells
		case <-again.C:
		}
	}
}

// left waits for the end of the command and checks that the terminal is as it was, and that nothing of the program lives.
func (x *seat) left() {
	x.b.t.Helper()
	select {
	case <-x.ended:
	case <-testrun.After(x.b.t):
		x.b.t.Fatalf("the command does not end. On the screen stands:\n%s", x.Shown())
	}
	if !testrun.Within(x.b.t, emptyWithin, func() bool { return x.Settings() == x.Initial }) {
		x.b.t.Errorf("the terminal is not as it was:\n%+v, want\n%+v", x.Settings(), x.Initial)
	}
	var alive []proc.Proc
	var err error
	if !testrun.Within(x.b.t, emptyWithin, func() bool {
		alive, err = proc.Alive(x.b.instance() + "/exec/")
		return err == nil && len(alive) == 0
	}) {
		x.b.t.Errorf("alive after the end of the command: %v, %v", alive, err)
	}
	x.Close()
}

// below returns the process that has the program.
func (x *seat) below() int {
	x.b.t.Helper()
	out, err := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(x.cmd.Process.Pid)).Output()
	pid, bad := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || bad != nil {
		x.b.t.Fatalf("the processes below %d: %q, %v", x.cmd.Process.Pid, out, err)
	}
	return pid
}

// TestTakeover: a person works in the sandbox of a job, in a terminal: it has the size of theirs, its keys make signals, and
// whatever is killed, their terminal is as before and nothing is left. Then the job goes on in the folder as they left it.
func TestTakeover(t *testing.T) {
	for _, level := range []string{"strict", "standard", "none"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			chat := filepath.Join(b.dir, "chat")
			if out, err := exec.Command("go", "build", "-o", chat, "github.com/agentsched/agentsched/examples/workers/chat").CombinedOutput(); err != nil {
				t.Fatalf("build the worker: %v\n%s", err, out)
			}
			b.config["sandbox"] = obj{"level": level}
			b.config["workers"] = obj{"chat": obj{"adapter": "exec", "command": []string{chat}}}
			r := b.start("run", b.jobs(obj{"id": "talk", "worker": "chat", "workspace": b.workspace(), "capabilities": []string{"read", "edit"},
				"instructions": "say begun\nsleep-until-interrupt\nsay ended"}))
			if !testrun.Until(t, func() bool { return strings.Contains(b.logs("talk"), "begun") }) {
				b.fatalf("the job does not run")
			}

			x := b.takeOver("talk")
			x.ready()
			x.Press("stty size </dev/tty; echo of a person >by-hand; echo all ''done\r")
			x.AwaitShown("all done")
			x.AwaitShown("50 160")
			x.Resize(120, 40)
			x.Press("until [ \"$(stty size)\" = '40 120' ]; do :; done; echo re''sized\r")
			x.AwaitShown("resized")
			nap := b.nap()
			x.Press("sleep " + nap + "; echo sl''ept\r")
			b.awaitSleep(nap)
			x.Press("\x03") // the program's own interrupt, and not the command's
			x.Press("echo still ''here\r")
			x.AwaitShown("still here")
			if out, _, code := b.command("tell", "talk", "more"); code != 0 || !strings.Contains(out, "in the hands of") {
				t.Errorf("tell: %d, %s", code, out)
			}
			if _, errs, code := b.command("--config", b.configFile(), "takeover", "talk", "--print"); code != 2 || !strings.Contains(errs, "in use by a person's terminal") {
				t.Errorf("a second terminal: %d, %s", code, errs)
			}
			x.Press("exit\r")
			x.left()

			for what, kill := range map[string]func(*seat){
				"the command":                          func(x *seat) { x.cmd.Process.Kill() },                     //nolint:errcheck // left waits for it
				"the process that has the program":     func(x *seat) { syscall.Kill(x.below(), syscall.SIGKILL) }, //nolint:errcheck // likewise
				"the command, by the end of a session": func(x *seat) { x.cmd.Process.Signal(syscall.SIGHUP) },     //nolint:errcheck // likewise
			} {
				x := b.takeOver("talk")
				x.ready()
				here, away := b.nap(), b.nap()
				x.Press(fmt.Sprintf("(setsid sleep %s &); sleep %s & stty raw -echo; sleep %s\r", away, here, here))
				b.awaitSleep(here)
				b.awaitSleep(away)
				kill(x)
				x.left()
				if !testrun.Within(t, emptyWithin, func() bool { return len(sleeping(b.stray)) == 0 }) {
					t.Errorf("%s was killed, and left %v", what, sleeping(b.stray))
				}
			}
			if j := b.show("talk"); j.Job.Held != job.HeldByPerson || len(j.Attempts) != 1 {
				b.fatalf("it should be in a person's hands: %s", asJSON(t, j))
			}
			if out, errs, code := b.command("handback", "talk", "go on"); code != 0 {
				b.fatalf("handback: exit code %d\n%s%s", code, out, errs)
			}
			r.exit(0)
			b.noProcess()
			j := b.show("talk")
			// A program that ends before it has read what it was told is begun once more.
			if o := b.last(j); len(j.Attempts) < 2 || !o.Succeeded() || j.Job.Counted != 1 || j.Attempts[0].Session != j.Attempts[1].Session {
				b.fatalf("want another attempt of the session: %s", asJSON(t, j))
			}
			b.content(b.applied(b.last(j))+"/by-hand", "of a person\n")
		})
	}
}

// awaitSleep blocks until a sleep of that duration is alive.
func (b *bench) awaitSleep(nap string) {
	b.t.Helper()
	if !testrun.Until(b.t, func() bool { return len(sleeping([]string{nap})) > 0 }) {
		b.fatalf("nothing sleeps for %s", nap)
	}
}

func (b *bench) logs(name string) string {
	out, _, _ := b.command("logs", name)
	return out
}
