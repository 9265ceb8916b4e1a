package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/queue"
)

// Options of a store.
type Options struct {
	Log zerolog.Logger
}

// Store is a queue.Store in one SQLite file.
type Store struct {
	path   string
	writer *writer // nil if open for reading only
	// follows is set of a copy that only Merge and Reload write to, see copy.go.
	follows bool
	reads   *readers
	heads   *readers                     // for Heads, which waits for no other read
	prices  atomic.Pointer[queue.Prices] // nil: queue.DefaultPrices

	closeOnce sync.Once
	closeErr  error
}

var _ queue.Store = (*Store)(nil)

// Open opens the store in the file at path, creates the file if there is none
// (its folder must exist) and migrates it to the newest version. Before that it keeps
// a copy for the older program, as path.versionN-TIME. Errors:
// queue.ErrNewerVersion, queue.ErrCorrupt, or what the system said.
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	s, err := open(ctx, path, opts)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return s, nil
}

// OpenReadOnly opens an existing store for looking, also while another process
// writes to it. Every write gives an error.
func OpenReadOnly(ctx context.Context, path string) (*Store, error) {
	s, err := openReadOnly(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open store %s for reading: %w", path, err)
	}
	return s, nil
}

// Close waits for writes under way and closes the store. It may be called twice.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		// The connection that writes is closed last: the last one to close
		// copies the log into the file, for which it must be able to write.
		s.closeErr = errors.Join(s.heads.close(), s.reads.close())
		if s.writer != nil {
			s.closeErr = errors.Join(s.closeErr, s.writer.stop())
			s.writer.tx.changes.forget() // from here on the file is asked, which is closed
		}
	})
	return s.closeErr
}

// newStore returns a store that can be read; mode is SQLite's.
func newStore(path, mode string) *Store {
	// The cache, 8 MiB, holds the inner pages of the indexes over a million jobs.
	return &Store{path: path, reads: newReaders(path, mode, maxReaders), heads: newReaders(path, mode, 1, "cache_size(-8192)")}
}

// write executes run in a transaction and returns once that is on disk.
func (s *Store) write(ctx context.Context, run func(*tx) error) error {
	switch {
	case s.writer == nil:
		return errReadOnly
	case s.follows:
		return queue.ErrStandby
	}
	return s.writer.do(ctx, run)
}
