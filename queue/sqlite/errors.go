package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/agentsched/agentsched/queue"
)

var (
	errClosed   = fmt.Errorf("the store is closed: %w", os.ErrClosed)
	errReadOnly = errors.New("the store is open for reading only")
)

// explain adds to a driver's error what it means here: a damaged file wraps
// queue.ErrCorrupt, a full or read-only disk says so in plain words.
func explain(err error) error {
	switch primaryCode(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", queue.ErrCorrupt, err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("the disk is full, free some space and try again: %w", err)
	case sqlite3.SQLITE_READONLY:
		return fmt.Errorf("the store or its folder cannot be written, check their permissions: %w", err)
	case sqlite3.SQLITE_BUSY:
		return fmt.Errorf("another process has been writing to the store for too long: %w", err)
	}
	return err
}

// primaryCode returns SQLite's primary result code, 0 if err is none of its errors.
func primaryCode(err error) int {
	return extendedCode(err) & 0xff
}

// extendedCode returns SQLite's extended result code, 0 if err is none of its errors.
func extendedCode(err error) int {
	if e, ok := errors.AsType[*sqliteError](err); ok {
		return int(e.code)
	}
	return 0
}

// isUnique reports whether a unique key refused the row.
func isUnique(err error) bool {
	code := extendedCode(err)
	return code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}

// contextError returns the context's error together with its cause, nil if it has none.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
