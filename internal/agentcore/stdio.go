package agentcore

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// TakeStdio moves this process's standard input and output aside and returns
// them as the two ends of the wire. From then on descriptor 1 is standard
// error and descriptor 0 is empty, so that no library can corrupt the wire by
// printing, nor swallow a part of it by reading.
//
// The returned files are in non-blocking mode: closing them ends a Read or
// Write that is under way.
func TakeStdio() (in, out *os.File, err error) {
	if in, err = moveAside(0, "wire-in"); err != nil {
		return nil, nil, fmt.Errorf("move standard input aside: %w", err)
	}
	if out, err = moveAside(1, "wire-out"); err != nil {
		return nil, nil, fmt.Errorf("move standard output aside: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	if err := dupOnto(int(null.Fd()), 0); err != nil {
		return nil, nil, fmt.Errorf("empty standard input: %w", err)
	}
	if err := dupOnto(2, 1); err != nil {
		return nil, nil, fmt.Errorf("point standard output at standard error: %w", err)
	}
	return in, out, nil
}

func moveAside(fd int, name string) (*os.File, error) {
	moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(moved, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(moved), name), nil
}
