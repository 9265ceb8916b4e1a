package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// fakers are where libfaketime is, which has a program read another wall clock.
const fakers = "/usr/lib/*/faketime/libfaketimeMT.so.1"

// CanClock reports whether libfaketime is installed, which Clock needs.
func CanClock() bool {
	found, err := filepath.Glob(fakers)
	return err == nil && len(found) > 0
}

// Clock has the server's wall clock go so many times as fast as the true one, such as 1.02, from when a
// process of it starts, and lets Jump set it. Its monotonic clock stays the true one.
func Clock(rate float64) Option { return func(o *options) { o.rate = rate } }

// clockFile is what says where the wall clock stands.
func (s *Server) clockFile() string { return filepath.Join(s.folder, "clock") }

// fakeClock prepares the environment for Clock.
func (s *Server) fakeClock() error {
	found, err := filepath.Glob(fakers)
	if err != nil || len(found) == 0 {
		return fmt.Errorf("libfaketime is not installed (%s): %w", fakers, os.ErrNotExist)
	}
	s.env = append(s.env, "LD_PRELOAD="+found[0], "FAKETIME_TIMESTAMP_FILE="+s.clockFile(), "FAKETIME_CACHE_DURATION=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1")
	return s.Jump(0)
}

// Jump has the wall clock of a server with a Clock stand so far from the true one, within a second.
func (s *Server) Jump(by time.Duration) error {
	next := s.clockFile() + ".new"
	if err := s.write(next, fmt.Sprintf("%+d x%g\n", int64(by/time.Second), s.rate)); err != nil {
		return err
	}
	return os.Rename(next, s.clockFile()) // it is read at any moment
}
