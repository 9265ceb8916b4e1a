//go:build !linux

package terminal

import (
	"errors"
	"os"
)

func openPTY() (master, slave *os.File, err error) {
	return nil, nil, errors.New("it is not supported on this system")
}

func inBackground(f func() error) error { return f() }
