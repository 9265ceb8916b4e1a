package top

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal with a child of this test in its foreground.
type terminal struct {
	t       *testing.T
	master  *os.File
	slave   *os.File // kept open, so that its settings can be read afterwards
	child   *exec.Cmd
	initial unix.Termios
	reader  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	grown *sync.Cond // the output did, or ended
	out   strings.Builder
	ended bool
}

func openTerminal(t *testing.T, width, height uint16, env ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	var n int
	control(t, master, func(fd int) (err error) {
		if n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	})
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, master: master, slave: slave}
	x.grown = sync.NewCond(&x.mu)
	x.resize(width, height)
	x.initial = x.settings()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	x.child = exec.Command(self)
	x.child.Env = append(append(os.Environ(), topChild+"=1", "TERM=xterm-256color"), env...)
	x.child.Stdin, x.child.Stdout, x.child.Stderr = slave, slave, os.Stderr
	x.child.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := x.child.Start(); err != nil {
		t.Fatal(err)
	}
	x.reader.Go(x.read)
	t.Cleanup(func() {
		if x.child.ProcessState == nil {
			x.child.Process.Kill()
			x.child.Wait()
		}
		x.slave.Close()
		x.reader.Wait()
		x.master.Close()
	})
	return x
}

// read collects what comes to the screen until the last process has closed it.
func (x *terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := x.master.Read(buf)
		x.mu.Lock()
		x.out.Write(buf[:n])
		x.ended = err != nil
		x.grown.Broadcast()
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits until text came to the screen since a mark and returns the mark
// behind everything that came so far.
func (x *terminal) await(mark int, text string) int {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for !strings.Contains(ansi.Strip(x.out.String()[mark:]), text) {
		if x.ended {
			x.t.Fatalf("%q never came to the screen: %q", text, x.out.String())
		}
		x.grown.Wait()
	}
	return x.out.Len()
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminal) resize(width, height uint16) {
	x.t.Helper()
	control(x.t, x.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
}

// control calls f with the file's descriptor and leaves the file as it is;
// File.Fd would make it blocking, so that Close waits for Read.
func control(t *testing.T, file *os.File, f func(fd int) error) {
	t.Helper()
	var failed error
	raw, err := file.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { failed = f(int(fd)) }), failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (x *terminal) settings() unix.Termios {
	x.t.Helper()
	var s *unix.Termios
	control(x.t, x.slave, func(fd int) (err error) {
		s, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return *s
}

// exit waits for the child's end and returns all that came to the screen.
func (x *terminal) exit() string {
	x.t.Helper()
	if err := x.child.Wait(); err != nil {
		x.t.Error(err)
	}
	if after := x.settings(); after != x.initial {
		x.t.Errorf("settings afterwards are %+v, want %+v", after, x.initial)
	}
	x.slave.Close()
	x.reader.Wait()
	out := x.out.String()
	for name, pair := range map[string][2]string{"the cursor is hidden": {"\x1b[?25h", "\x1b[?25l"}, "the alternate screen is on": {"\x1b[?1049l", "\x1b[?1049h"}} {
		if !strings.Contains(out, pair[1]) || strings.LastIndex(out, pair[0]) < strings.LastIndex(out, pair[1]) {
			x.t.Errorf("%s in the end: %q", name, out[max(len(out)-300, 0):])
		}
	}
	return out
}

func TestOnTerminal(t *testing.T) {
	x := openTerminal(t, 100, 30)
	mark := x.await(0, "fix-login")
	x.press("/review\r")
	mark = x.await(mark, "filter: review")
	x.press("\x1b") // esc
	mark = x.await(mark, "write-docs")
	x.press("c")
	mark = x.await(mark, "Cancel fix-login?")
	x.press("y")
	mark = x.await(mark, "is cancelled")
	x.press("l")
	mark = x.await(mark, "it has begun")
	x.press("q")
	mark = x.await(mark, "WORKER")
	x.resize(60, 16)
	x.await(mark, "q quit")
	x.press("q")
	out := x.exit()
	if strings.Contains(out, "\x1b]0;") || strings.Contains(out, "owned") {
		t.Errorf("a job's text acts upon the terminal: %q", out)
	}
}

func TestOnTerminalWithoutColour(t *testing.T) {
	x := openTerminal(t, 100, 30, "NO_COLOR=1")
	x.await(0, "fix-login")
	x.press("\x03") // Ctrl-C
	out := x.exit()
	if colour := regexp.MustCompile("\x1b\\[[0-9;]*(3|4|9)[0-9]m").FindString(out); colour != "" {
		t.Errorf("colour %q in %q", colour, out)
	}
}

func TestOnTerminalTerminated(t *testing.T) {
	x := openTerminal(t, 100, 30)
	x.await(0, "fix-login")
	if err := x.child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.exit()
}
