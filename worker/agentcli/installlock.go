package agentcli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockEvery is how often a lock that another holds is tried: flock(2) cannot
// be waited for together with a context.
const lockEvery = 100 * time.Millisecond

// lockInstalls waits for the lock on dir. It is free again after unlockInstalls, or when
// this process and every child that inherited the file have died.
func lockInstalls(ctx context.Context, dir string, progress func(string)) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	told := false
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if !told {
			told = true
			progress(fmt.Sprintf("waiting for another install in %s", dir))
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another install: %w", context.Cause(ctx))
		case <-time.After(lockEvery):
		}
	}
}

// unlockInstalls frees the lock, also for children that still have the file open.
func unlockInstalls(lock *os.File) {
	syscall.Flock(int(lock.Fd()), syscall.LOCK_UN)
	lock.Close()
}
