package terminaltest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/testrun"
)

// Terminal is a pseudo terminal. Its methods end the test where they fail.
type Terminal struct {
	// Slave is what a process under test has for its terminal. It is kept open, so
	// that its settings can be read afterwards; who closes it lets the screen end.
	Slave *os.File
	// Initial are the settings before anybody changed them.
	Initial unix.Termios
	// Answers has the process told what it asks of the terminal. It is set before Watch.
	Answers bool

	t      *testing.T
	master *os.File
	reader sync.WaitGroup

	mu    sync.Mutex // guards what follows
	out   strings.Builder
	shown *vt.Emulator // what a person would see of out
	ended bool
}

// Open opens a terminal of that size, and skips the test where there are none.
// Nothing is read from it before Watch.
func Open(t *testing.T, width, height uint16) *Terminal {
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
	x := &Terminal{t: t, master: master, Slave: slave, shown: vt.NewEmulator(int(width), int(height))}
	x.Resize(width, height)
	x.Initial = x.Settings()
	return x
}

// Watch collects what comes to the screen, from when the process under test was
// started on, until the last process has closed the terminal.
func (x *Terminal) Watch() {
	x.reader.Go(x.read)
	// Its answers to what the process asks of it go nowhere, as in a terminal that
	// knows nothing, unless Answers; unread they would hold it up.
	to := io.Discard
	if x.Answers {
		to = x.master
	}
	x.reader.Go(func() { io.Copy(to, x.shown) })
}

func (x *Terminal) read() {
	defer x.shown.InputPipe().(io.Closer).Close() // ends the copy
	buf := make([]byte, 4096)
	for {
		n, err := x.master.Read(buf)
		x.mu.Lock()
		x.out.Write(buf[:n])
		x.shown.Write(buf[:n])
		x.ended = err != nil
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Await waits until text came to the screen since a mark and returns the mark
// behind everything that came so far.
func (x *Terminal) Await(mark int, text string) int {
	x.t.Helper()
	return x.await(text, func() bool { return strings.Contains(ansi.Strip(x.out.String()[mark:]), text) })
}

// AwaitShown waits until text is to be seen on the screen, on one line. A view that is
// redrawn sends only what changed, so that its text may never come as a whole: it is
// looked for here, and Await is for what comes once. It returns the mark behind
// everything that came so far.
func (x *Terminal) AwaitShown(text string) int {
	x.t.Helper()
	return x.await(text, func() bool { return strings.Contains(x.shown.String(), text) })
}

func (x *Terminal) await(text string, holds func() bool) (mark int) {
	x.t.Helper()
	var is, ended bool
	testrun.Until(x.t, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		is, ended, mark = holds(), x.ended, x.out.Len()
		return is || ended
	})
	if !is {
		x.t.Fatalf("%q never came to the screen (which has ended: %t), where stands:\n%s", text, ended, x.Shown())
	}
	return mark
}

// Shown returns what stands on the screen.
func (x *Terminal) Shown() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.String()
}

// dismissal is for how long Dismiss lets a question stand before it types, and types again.
const dismissal = 2 * time.Second

// Dismiss types a key until text has gone from the screen, as a person who has read it. A
// program that asks what one must not consent to by accident throws away what is typed
// when it begins to ask: codex does for up to a second, says nothing of that, and may even
// end with an error where something comes just then.
func (x *Terminal) Dismiss(text, key string) {
	x.t.Helper()
	x.AwaitShown(text)
	if last := time.Now(); !testrun.Until(x.t, func() bool {
		if !strings.Contains(x.Shown(), text) {
			return true
		}
		if time.Since(last) >= dismissal {
			last = time.Now()
			x.Press(key)
		}
		return false
	}) {
		x.t.Fatalf("%q stays on the screen", text)
	}
}

// Press types keys.
func (x *Terminal) Press(keys string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// Resize gives the window another size.
func (x *Terminal) Resize(width, height uint16) {
	x.t.Helper()
	x.mu.Lock()
	x.shown.Resize(int(width), int(height))
	x.mu.Unlock()
	control(x.t, x.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
}

// Settings returns those in force.
func (x *Terminal) Settings() unix.Termios {
	x.t.Helper()
	var s *unix.Termios
	control(x.t, x.Slave, func(fd int) (err error) {
		s, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return *s
}

// Screen closes the slave, waits until everybody else has, and returns all that came
// to the screen. It may be called again.
func (x *Terminal) Screen() string {
	x.Slave.Close()
	x.reader.Wait()
	return x.out.String()
}

// HangUp takes the terminal away from whoever uses it.
func (x *Terminal) HangUp() {
	x.Slave.Close()
	x.master.Close()
	x.reader.Wait()
}

// Close gives the terminal up, when nobody uses it any more.
func (x *Terminal) Close() {
	x.Screen()
	x.master.Close()
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
