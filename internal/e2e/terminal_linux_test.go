package e2e

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal: closing the master is what happens to a
// program when its window is closed or its connection breaks.
type terminal struct{ master, slave *os.File }

// onTerminal gives the schedulers that are started from now on a controlling
// terminal. Their output goes where it always goes.
func (b *bench) onTerminal() {
	b.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		b.t.Skipf("no pseudo-terminals: %v", err)
	}
	b.t.Cleanup(func() { master.Close() })
	var n int
	if err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err == nil {
		n, err = unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { slave.Close() })
	b.terminal = &terminal{master, slave}
}

// hangUp closes the scheduler's terminal: the kernel then sends SIGHUP.
func (r *run) hangUp() {
	r.b.t.Helper()
	if err := r.terminal.master.Close(); err != nil {
		r.b.t.Fatal(err)
	}
}
