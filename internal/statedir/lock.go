package statedir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// LockedError says that another scheduler works on the state directory.
type LockedError struct {
	Path string
	PID  int // 0 if unknown
}

// Error names the other process and what can be done.
func (e *LockedError) Error() string {
	who := "another scheduler"
	if e.PID > 0 {
		who = fmt.Sprintf("the scheduler with process id %d", e.PID)
	}
	return fmt.Sprintf("state directory %s is in use by %s; wait for it to end, or use another directory with --state DIR", e.Path, who)
}

// Lock is held by the one scheduler that works on a state directory. The
// kernel frees it when that process dies.
type Lock struct{ file *os.File }

// Lock takes the lock, or returns a *LockedError at once.
func (d *Dir) Lock() (*Lock, error) {
	file, err := os.OpenFile(d.join("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		// One that only looks whether it is held, as Held does, is gone in a moment.
		if errors.Is(err, syscall.EWOULDBLOCK) && d.isShared(file) {
			runtime.Gosched()
			continue
		}
		defer file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		return nil, &LockedError{Path: d.path, PID: pidOf(file)}
	}
	text := strconv.Itoa(os.Getpid()) + "\n"
	if err := errors.Join(file.Truncate(0), writeAt(file, text)); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return &Lock{file}, nil
}

// Held returns a *LockedError if somebody holds the lock, and nil if nobody does. It
// is in nobody's way who takes it.
func (d *Dir) Held() error {
	file, err := os.OpenFile(d.join("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("look at the lock of the state directory: %w", err)
	}
	defer file.Close()
	if d.isShared(file) {
		return nil
	}
	return &LockedError{Path: d.path, PID: pidOf(file)}
}

// isShared reports whether nobody holds the lock alone. It gives up what it had of it.
func (d *Dir) isShared(file *os.File) bool {
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return false
	}
	return syscall.Flock(int(file.Fd()), syscall.LOCK_UN) == nil
}

// pidOf returns whose process id the lock file tells; 0: none.
func pidOf(file *os.File) int {
	text := make([]byte, 32)
	n, _ := file.ReadAt(text, 0)
	pid, _ := strconv.Atoi(string(bytes.TrimSpace(text[:n])))
	return pid
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// Release frees the lock. Releasing twice is harmless.
func (l *Lock) Release() {
	// Closing alone would leave it with a child that is just being forked.
	syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN) //nolint:errcheck // closing is what counts then
	l.file.Close()
}
