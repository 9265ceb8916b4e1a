//go:build !linux

package pgtest

import (
	"errors"
	"fmt"
	"syscall"
)

func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setsid: true}
}

// signalAll leaves it to the processes to see that the first one has ended.
func (s *Server) signalAll(syscall.Signal) error { return nil }

func (s *Server) freeze() error {
	return fmt.Errorf("freeze a server where processes cannot be looked up in /proc: %w", errors.ErrUnsupported)
}

func (s *Server) forgetMemory() error { return nil }
