package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentsched/agentsched/internal/terminaltest"
)

// terminalVerbs are the verbs about terminals.
func terminalVerbs(t *testing.T) map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"onterminal": func(ts *testscript.TestScript, neg bool, args []string) { onTerminal(t, ts, neg, args) },
		"terminal":   func(ts *testscript.TestScript, neg bool, args []string) { openSeat(t, ts, neg, args) },
		"press":      seatVerb(2, func(ts *testscript.TestScript, s *seat, args []string) { s.press(ts, args[0]) }),
		"shown":      seatVerb(2, func(_ *testscript.TestScript, s *seat, args []string) { s.AwaitShown(args[0]) }),
		"hangup":     seatVerb(1, func(_ *testscript.TestScript, s *seat, _ []string) { s.hangUp() }),
		"left":       seatVerb(2, func(ts *testscript.TestScript, s *seat, args []string) { s.left(ts, args[0]) }),
	}
}

// onTerminal is the verb of that name. The ttyin and ttyout of testscript close
// the terminal when the program has ended, and lose what was not read by then.
func onTerminal(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: onterminal PROGRAM ARGS...")
	}
	x := terminaltest.Open(t, 200, 50)
	defer x.Close()
	x.Watch()
	err := ts.Exec("sh", append([]string{"-c", `exec "$@" >"$0"`, x.Slave.Name()}, args...)...)
	screen := x.Screen()
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), screen)
}

// seat is a terminal of a script with the program in its foreground.
type seat struct {
	*terminaltest.Terminal
	child *exec.Cmd
	gone  bool // the terminal is
}

// seats are the terminals of a script, by the names that it gives them.
type seats map[string]*seat

func openSeat(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: terminal NAME ARGS...")
	}
	x := &seat{Terminal: terminaltest.Open(t, 120, 40), child: exec.Command(filepath.Join(ts.Getenv("SCHEDULER_DIR"), "scheduler"), args[1:]...)}
	x.child.Dir = ts.MkAbs(".")
	for _, name := range ts.Value(variablesKey{}).([]string) {
		x.child.Env = append(x.child.Env, name+"="+ts.Getenv(name))
	}
	x.child.Env = append(x.child.Env, "TERM=xterm-256color")
	x.child.Stdin, x.child.Stdout, x.child.Stderr = x.Slave, x.Slave, x.Slave
	x.child.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	ts.Check(x.child.Start())
	ts.Defer(x.close)
	x.Watch()
	ts.Value(seatsKey{}).(seats)[args[0]] = x
}

func seatVerb(n int, do func(*testscript.TestScript, *seat, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != n {
			ts.Fatalf("usage: VERB NAME, with %d more", n-1)
		}
		s := ts.Value(seatsKey{}).(seats)[args[0]]
		if s == nil {
			ts.Fatalf("there is no terminal %s", args[0])
		}
		do(ts, s, args[1:])
	}
}

// press types keys, as they are written in Go.
func (s *seat) press(ts *testscript.TestScript, keys string) {
	text, err := strconv.Unquote(`"` + keys + `"`)
	ts.Check(err)
	s.Press(text)
}

func (s *seat) hangUp() {
	s.gone = true
	s.HangUp()
}

// left waits until the program has ended with that code, and prints what came to the screen.
func (s *seat) left(ts *testscript.TestScript, code string) {
	err := s.child.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || !exit.Exited()) {
		ts.Check(err)
	}
	if got := strconv.Itoa(s.child.ProcessState.ExitCode()); got != code {
		ts.Fatalf("it exits with %s, want %s", got, code)
	}
	if s.gone {
		return
	}
	if after := s.Settings(); after != s.Initial {
		ts.Fatalf("the terminal's settings afterwards are %+v, want %+v", after, s.Initial)
	}
	screen := s.Screen()
	if strings.LastIndex(screen, "\x1b[?25h") < strings.LastIndex(screen, "\x1b[?25l") {
		ts.Fatalf("the cursor is hidden in the end: %q", screen)
	}
	fmt.Fprint(ts.Stdout(), screen)
}

func (s *seat) close() {
	if s.child.ProcessState == nil {
		s.child.Process.Kill()
		s.child.Wait()
	}
	if !s.gone {
		s.Close()
	}
}
