package progress

import (
	"bufio"
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
	orders  *os.File
	reports *bufio.Scanner
	errors  strings.Builder // standard error, complete after exit
	initial unix.Termios    // before the child
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
	term := &terminal{t: t, master: master, slave: slave}
	term.grown = sync.NewCond(&term.mu)
	term.resize(width, height)
	term.initial = term.settings()
	term.start(env)
	term.reader.Go(term.read)
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
	x.child.Stdin, x.child.Stdout, x.child.Stderr = x.slave, x.slave, &x.errors
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
		s, err = unix.IoctlGetTermios(fd, getTermios)
		return err
	})
	return *s
}

// exit lets the child end and returns all that came to the screen.
func (x *terminal) exit() string {
	x.t.Helper()
	x.orders.Close()
	if err := x.child.Wait(); err != nil {
		x.t.Errorf("%v: %s", err, x.errors.String())
	}
	x.slave.Close()
	x.reader.Wait()
	return x.out.String()
}

func (x *terminal) close() {
	x.orders.Close()
	if x.child.ProcessState == nil {
		x.child.Process.Kill()
		x.child.Wait()
	}
	x.slave.Close()
	x.reader.Wait()
	x.master.Close()
}

func TestLiveOnTerminal(t *testing.T) {
	x := openTerminal(t, 100, 24)
	mark := x.await(0, "3 waiting")

	during := x.settings()
	if during.Lflag&unix.ECHO != 0 || during.Lflag&unix.ISIG == 0 || during.Lflag&unix.ICANON == 0 || during.Oflag != x.initial.Oflag {
		t.Errorf("local modes %#x, want no echo, yet signals and whole lines", during.Lflag)
	}
	x.order("story")
	x.await(mark, "ESCALATION")
	mark = x.await(mark, "3 running")

	x.order("log")
	x.await(mark, "a line of the log")

	// The terminal itself, and not the view, makes SIGINT of Ctrl-C.
	fmt.Fprintln(x.orders, "interrupt")
	if _, err := x.master.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	x.report("interrupt")

	x.resize(40, 12)
	x.await(mark, "3 run,")
	x.order("rest")
	x.order("done")
	x.order("log after")
	if after := x.settings(); after != x.initial {
		t.Errorf("settings after Done are %+v, want %+v", after, x.initial)
	}
	out := x.exit()
	if got := x.errors.String(); got != "half a line and the rest\n" {
		t.Errorf("standard error has %q", got)
	}
	if tail := out[max(len(out)-600, 0):]; !strings.Contains(tail, "1 fail") {
		t.Errorf("the last state is not on the screen: %q", tail)
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
			x.await(0, "waiting")
			if _, err := x.master.WriteString("\x13"); err != nil { // Ctrl-S
				t.Fatal(err)
			}
			x.order("flood")
			if _, err := x.master.WriteString("\x11"); err != nil { // Ctrl-Q
				t.Fatal(err)
			}
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
	x.await(0, "waiting")
	x.slave.Close()
	x.master.Close()
	x.reader.Wait()
	fmt.Fprintln(x.orders, "story")
	err := x.child.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGHUP {
		t.Errorf("the child ended with %v, want the hangup that its program did not ask for", err)
	}
}
