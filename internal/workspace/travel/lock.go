package travel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock is the lock of a mirror. Every command that runs under it inherits its file, so
// that after a crash the next one waits until the last command of this process has ended.
type lock []*os.File

func (l lock) release() {
	for _, f := range l {
		f.Close()
	}
}

const lockPoll = 15 * time.Millisecond

// takeLock waits for an exclusive lock on a file. It asks again and again, since a
// blocked flock cannot be cancelled.
func takeLock(ctx context.Context, path string) (lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return lock{f}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for the lock %s: %w", path, context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}
