package terminal

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/terminaltest"
)

// topTerminal is a pseudo terminal with a child of this test in its foreground.
type topTerminal struct {
	*terminaltest.Terminal
	t     *testing.T
	child *exec.Cmd
}

func openTopTerminal(t *testing.T, width, height uint16, env ...string) *topTerminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	x := &topTerminal{Terminal: terminaltest.Open(t, width, height), t: t, child: exec.Command(self)}
	x.child.Env = append(append(os.Environ(), topChild+"=1", "TERM=xterm-256color"), env...)
	x.child.Stdin, x.child.Stdout, x.child.Stderr = x.Slave, x.Slave, os.Stderr
	x.child.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := x.child.Start(); err != nil {
		t.Fatal(err)
	}
	x.Watch()
	t.Cleanup(func() {
		if x.child.ProcessState == nil {
			x.child.Process.Kill()
			x.child.Wait()
		}
		x.Close()
	})
	return x
}

// exit waits for the child's end and returns all that came to the screen.
func (x *topTerminal) exit() string {
	x.t.Helper()
	if err := x.child.Wait(); err != nil {
		x.t.Error(err)
	}
	if after := x.Settings(); after != x.Initial {
		x.t.Errorf("settings afterwards are %+v, want %+v", after, x.Initial)
	}
	out := x.Screen()
	for name, pair := range map[string][2]string{"the cursor is hidden": {"\x1b[?25h", "\x1b[?25l"}, "the alternate screen is on": {"\x1b[?1049l", "\x1b[?1049h"}} {
		if !strings.Contains(out, pair[1]) || strings.LastIndex(out, pair[0]) < strings.LastIndex(out, pair[1]) {
			x.t.Errorf("%s in the end: %q", name, out[max(len(out)-300, 0):])
		}
	}
	return out
}

func TestOnTerminal(t *testing.T) {
	x := openTopTerminal(t, 100, 30)
	x.AwaitShown("fix-login")
	x.Press("/review\r")
	x.AwaitShown("filter: review")
	x.Press("\x1b") // esc
	x.AwaitShown("write-docs")
	x.Press("jc")
	x.AwaitShown("Cancel fix-login?")
	x.Press("y")
	x.AwaitShown("is cancelled")
	mark := x.AwaitShown("fix-login")
	x.Press("t") // the view makes room for a conversation, and comes back
	mark = x.Await(mark, "talking with 01a1fcce-0009")
	x.Await(mark, "WORKER")
	x.Press("l")
	x.AwaitShown("it has begun")
	x.Press("q")
	x.AwaitShown("WORKER")
	x.Resize(60, 16)
	x.AwaitShown("q quit")
	x.Press("q")
	out := x.exit()
	if strings.Contains(out, "\x1b]0;") || strings.Contains(out, "owned") {
		t.Errorf("a job's text acts upon the terminal: %q", out)
	}
}

func TestOnTerminalWithoutColour(t *testing.T) {
	x := openTopTerminal(t, 100, 30, "NO_COLOR=1")
	x.AwaitShown("fix-login")
	x.Press("\x03") // Ctrl-C
	out := x.exit()
	if colour := regexp.MustCompile("\x1b\\[[0-9;]*(3|4|9)[0-9]m").FindString(out); colour != "" {
		t.Errorf("colour %q in %q", colour, out)
	}
}

func TestOnTerminalTerminated(t *testing.T) {
	x := openTopTerminal(t, 100, 30)
	x.AwaitShown("fix-login")
	if err := x.child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.exit()
}
