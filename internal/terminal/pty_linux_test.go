package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/terminaltest"
)

// terminal is a pseudo terminal with a child of this test in its foreground.
type terminal struct {
	*terminaltest.Terminal
	t       *testing.T
	child   *exec.Cmd
	orders  *os.File
	reports *bufio.Scanner
	errors  strings.Builder // standard error, complete after exit
}

func openTerminal(t *testing.T, width, height uint16, env ...string) *terminal {
	t.Helper()
	term := &terminal{Terminal: terminaltest.Open(t, width, height), t: t}
	term.start(env)
	term.Watch()
	t.Cleanup(term.close)
	return term
}

func (x *terminal) start(env []string) {
	x.t.Helper()
	self, err := os.Executable()
	if err != nil {
		x.t.Fatal(err)
	}
	ordersR, ordersW, err := os.Pipe()
	if err != nil {
		x.t.Fatal(err)
	}
	reportsR, reportsW, err := os.Pipe()
	if err != nil {
		x.t.Fatal(err)
	}
	x.child = exec.Command(self)
	x.child.Env = append(append(os.Environ(), liveChild+"=1", "TERM=xterm-256color"), env...)
	x.child.Stdin, x.child.Stdout, x.child.Stderr = x.Slave, x.Slave, &x.errors
	x.child.ExtraFiles = []*os.File{ordersR, reportsW}
	x.child.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := x.child.Start(); err != nil {
		x.t.Fatal(err)
	}
	ordersR.Close()
	reportsW.Close()
	x.orders, x.reports = ordersW, bufio.NewScanner(reportsR)
	x.t.Cleanup(func() { reportsR.Close() })
}

// order gives the child an order and waits for its word that it is done.
func (x *terminal) order(word string) {
	x.t.Helper()
	fmt.Fprintln(x.orders, word)
	x.report(word)
}

func (x *terminal) report(want string) {
	x.t.Helper()
	if !x.reports.Scan() || !strings.HasPrefix(x.reports.Text(), want) {
		x.t.Fatalf("report %q, want %q", x.reports.Text(), want)
	}
}

// exit lets the child end and returns all that came to the screen.
func (x *terminal) exit() string {
	x.t.Helper()
	x.orders.Close()
	if err := x.child.Wait(); err != nil {
		x.t.Errorf("%v: %s", err, x.errors.String())
	}
	return x.Screen()
}

func (x *terminal) close() {
	x.orders.Close()
	if x.child.ProcessState == nil {
		x.child.Process.Kill()
		x.child.Wait()
	}
	x.Close()
}

func TestLiveOnTerminal(t *testing.T) {
	x := openTerminal(t, 100, 24)
	x.AwaitShown("3 pending")

	during := x.Settings()
	if during.Lflag&unix.ECHO != 0 || during.Lflag&unix.ISIG == 0 || during.Lflag&unix.ICANON == 0 || during.Oflag != x.Initial.Oflag {
		t.Errorf("local modes %#x, want no echo, yet signals and whole lines", during.Lflag)
	}
	x.order("story")
	x.AwaitShown("ESCALATION")
	x.AwaitShown("3 running")

	x.order("log")
	x.AwaitShown("a line of the log")

	// The terminal itself, and not the view, makes SIGINT of Ctrl-C.
	fmt.Fprintln(x.orders, "interrupt")
	x.Press("\x03")
	x.report("interrupt")

	x.Resize(40, 12)
	mark := x.AwaitShown("3 run,")
	x.order("rest")
	x.order("done")
	x.order("log after")
	if after := x.Settings(); after != x.Initial {
		t.Errorf("settings after Done are %+v, want %+v", after, x.Initial)
	}
	out := x.exit()
	if got := x.errors.String(); got != "half a line and the rest\n" {
		t.Errorf("standard error has %q", got)
	}
	// Lines above the view may follow its last state, as they do if that
	// was drawn before all of them were.
	if last := out[mark:]; !strings.Contains(last, "1 fail") {
		t.Errorf("the last state is not on the screen: %q", last)
	}
	if show, hide := strings.LastIndex(out, "\x1b[?25h"), strings.LastIndex(out, "\x1b[?25l"); show < hide {
		t.Error("the cursor is hidden in the end")
	}
	decent(t, out)
}

// decent fails the test if the view did what it must not.
func decent(t *testing.T, out string) {
	t.Helper()
	for name, sequence := range map[string]string{
		"asks the terminal for a mode": "$p", "asks for its kind": "\x1b[c", "asks for its keyboard": "\x1b[?u", "takes the alternate screen": "\x1b[?1049h",
		"clears the screen": "\x1b[2J", "sets a title": "\x1b]0;", "echoes ^C": "^C",
	} {
		if strings.Contains(out, sequence) {
			t.Errorf("the view %s: %q in %q", name, sequence, out)
		}
	}
}

func TestLiveWithoutColour(t *testing.T) {
	x := openTerminal(t, 100, 24, "NO_COLOR=1")
	x.order("story")
	x.order("rest")
	x.order("done")
	out := x.exit()
	if colour := regexp.MustCompile("\x1b\\[[0-9;]*[1-9][0-9;]*m").FindString(out); colour != "" {
		t.Errorf("colour %q in %q", colour, out)
	}
}

// Updates that come far faster than they can be drawn do not wait for the
// terminal, not even for one that is stopped.
func TestLiveFlood(t *testing.T) {
	for _, term := range []string{"xterm-kitty", ""} {
		t.Run("TERM="+term, func(t *testing.T) {
			x := openTerminal(t, 100, 24, "TERM="+term)
			x.Await(0, "pending")
			x.Press("\x13") // Ctrl-S
			x.order("flood")
			x.Press("\x11") // Ctrl-Q
			x.order("done")
			out := x.exit()
			if len(out) > 20_000 {
				t.Errorf("%d bytes came to the screen", len(out))
			}
			decent(t, out)
		})
	}
}

// A terminal that goes away takes nothing along.
func TestLiveHangup(t *testing.T) {
	x := openTerminal(t, 100, 24)
	x.Await(0, "pending")
	x.HangUp()
	fmt.Fprintln(x.orders, "story")
	err := x.child.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGHUP {
		t.Errorf("the child ended with %v, want the hangup that its program did not ask for", err)
	}
}
