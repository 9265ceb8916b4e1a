package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// echo remembers how a terminal's echo was; nil remembers nothing.
type echo struct {
	fd  int
	was unix.Termios
}

// muteEcho makes the terminal show nothing of what is typed, the "^C" of
// Ctrl-C included. All else stays: lines are edited, keys make signals. It
// returns nil and does nothing if in is nil, no terminal, or belongs to a
// process group other than this one, in which case the attempt would stop this
// process (SIGTTOU).
func muteEcho(in *os.File) *echo {
	if in == nil {
		return nil
	}
	fd := int(in.Fd())
	was, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil || !inForeground(fd) {
		return nil
	}
	muted := *was
	muted.Lflag &^= unix.ECHO | unix.ECHONL
	if unix.IoctlSetTermios(fd, setTermios, &muted) != nil {
		return nil
	}
	return &echo{fd, *was}
}

func (e *echo) restore() {
	if e != nil && inForeground(e.fd) {
		unix.IoctlSetTermios(e.fd, setTermios, &e.was)
	}
}

func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
