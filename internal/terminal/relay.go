package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Relay is a pseudo terminal for a program that a person uses at the terminal of this process. Keys, output and the size of the
// window are passed on as they are, and signals by their keys; what the program makes of its terminal stays there.
//
//	terminal ─ in ──► master ═ Slave ── program
//	         ◄─ out ─
type Relay struct {
	// Slave is the program's terminal. The caller closes it when the program has it.
	Slave *os.File

	in, out, master *os.File
	was             *Settings
	raw             bool
	stop            *os.File // its end ends the reading of keys
	stopped         *os.File
	signals         chan os.Signal
	keys, prints    sync.WaitGroup
}

// NewRelay opens a pseudo terminal like the terminal of in and out. Nothing is passed on yet.
func NewRelay(in, out *os.File) (r *Relay, err error) {
	was, err := SettingsOf(in)
	if err != nil {
		return nil, fmt.Errorf("open a pseudo terminal: %w", err)
	}
	r = &Relay{in: in, out: out, was: was, signals: make(chan os.Signal, 1)}
	if r.master, r.Slave, err = openPTY(); err != nil {
		return nil, fmt.Errorf("open a pseudo terminal: %w", err)
	}
	r.stopped, r.stop, err = os.Pipe()
	if err == nil {
		err = was.apply(r.Slave) // its keys, such as the one that erases
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a pseudo terminal: %w", err), r.master.Close(), r.Slave.Close())
	}
	r.resize()
	return r, nil
}

// Start passes keys, output and sizes on from now on.
func (r *Relay) Start() error {
	if _, err := term.MakeRaw(int(r.in.Fd())); err != nil {
		return fmt.Errorf("prepare the terminal: %w", err)
	}
	r.raw = true
	r.resize()
	signal.Notify(r.signals, unix.SIGWINCH, unix.SIGCONT)
	r.keys.Go(func() {
		for s := range r.signals {
			if s == unix.SIGCONT {
				_, _ = term.MakeRaw(int(r.in.Fd())) // who has stopped this process has taken it
			}
			r.resize()
		}
	})
	r.keys.Go(r.passKeys)
	r.prints.Go(func() { _, _ = io.Copy(r.out, r.master) }) // to the end of the last process that has the terminal
	return nil
}

// passKeys passes keys on until stop is closed. A key that is typed after that is left for others.
func (r *Relay) passKeys() {
	buf := make([]byte, 4096)
	fds := []unix.PollFd{{Fd: int32(r.in.Fd()), Events: unix.POLLIN}, {Fd: int32(r.stopped.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[1].Revents != 0 {
			return
		}
		if fds[0].Revents == 0 {
			continue
		}
		n, err := r.in.Read(buf)
		if err != nil {
			return // it was hung up, which is told by a signal
		}
		if _, err := r.master.Write(buf[:n]); err != nil {
			return
		}
	}
}

// resize gives the program's window the size of the person's.
func (r *Relay) resize() {
	size, err := unix.IoctlGetWinsize(int(r.in.Fd()), unix.TIOCGWINSZ)
	if err == nil {
		_ = control(r.master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
	}
}

// ownModes ends what a program has asked of a terminal and may have left: the mouse, the focus, pasting in brackets, keys told in
// other ways, a hidden cursor, colours.
const ownModes = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?2026l\x1b[>4m\x1b[=0;1u\x1b[?1l\x1b>\x1b[?25h\x1b[m"

// otherScreen leaves the screen that full-screen programs use.
const otherScreen = "\x1b[?1049l"

// Close gives the terminal back as it was, when all that have Slave have ended. killed says that the program could not tidy up.
func (r *Relay) Close(killed bool) error {
	if r.raw {
		r.prints.Wait()
	}
	err := errors.Join(r.stop.Close(), r.master.Close())
	signal.Stop(r.signals)
	close(r.signals)
	r.keys.Wait()
	err = errors.Join(err, r.stopped.Close())
	if !r.raw {
		return err
	}
	modes := ownModes
	if killed {
		modes += otherScreen + "\r\n"
	}
	_, _ = r.out.WriteString(modes) // there may be no terminal any more
	return errors.Join(err, r.was.Restore())
}

// control calls f with the file's descriptor and leaves the file as it is; File.Fd would make it blocking.
func control(file *os.File, f func(fd int) error) error {
	var failed error
	raw, err := file.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { failed = f(int(fd)) }), failed)
	}
	return err
}

// Settings are those of a terminal at a moment.
type Settings struct {
	file *os.File
	was  unix.Termios
}

// SettingsOf returns those of now.
func SettingsOf(file *os.File) (*Settings, error) {
	was, err := unix.IoctlGetTermios(int(file.Fd()), getTermios)
	if err != nil {
		return nil, fmt.Errorf("read the settings of %s: %w", file.Name(), err)
	}
	return &Settings{file, *was}, nil
}

func (s *Settings) apply(other *os.File) error {
	return control(other, func(fd int) error { return unix.IoctlSetTermios(fd, setTermios, &s.was) })
}

// Restore sets them again. That a terminal is gone is no error.
func (s *Settings) Restore() error {
	err := unix.IoctlSetTermios(int(s.file.Fd()), setTermios, &s.was)
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.ENOTTY) {
		return nil
	}
	return err
}

// RestoreRaw sets them again for a Relay that was killed, unless somebody else has the terminal by now: it is left alone where it
// is not as a Relay makes it.
func (s *Settings) RestoreRaw() error {
	is, err := unix.IoctlGetTermios(int(s.file.Fd()), getTermios)
	if err != nil || is.Lflag&(unix.ISIG|unix.ICANON|unix.ECHO) != 0 {
		return nil
	}
	return inBackground(func() error {
		_, _ = s.file.WriteString(ownModes + otherScreen + "\r\n")
		return s.Restore()
	})
}
