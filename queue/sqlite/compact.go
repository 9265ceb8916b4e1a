package sqlite

import (
	"context"
	"errors"
	"fmt"
)

// compactPages is how many pages are given back in one transaction.
const compactPages = 512

// Compact implements queue.Keeper. A file that was made before stores could be
// compacted keeps its size; what is free in it is used again.
func (s *Store) Compact(ctx context.Context) error {
	vacuum := fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, compactPages)
	for more := true; more; {
		err := s.write(ctx, func(t *tx) error {
			before, _, err := t.number(`PRAGMA freelist_count`)
			if err != nil || before == 0 {
				more = false
				return err
			}
			if err := t.exec(vacuum); err != nil {
				return err
			}
			after, _, err := t.number(`PRAGMA freelist_count`)
			more = after > 0 && after < before
			return err
		})
		if err != nil {
			return fmt.Errorf("compact the store: %w", err)
		}
	}
	// The file gets smaller when the log is copied back into it. That waits for
	// nobody: if a read is under way, a later one does it.
	d, err := openDB(s.path, "rw", []string{waitFor(0)})
	if err == nil {
		err = d.control(`PRAGMA wal_checkpoint(PASSIVE)`)
		err = errors.Join(err, d.close())
	}
	if err != nil {
		return fmt.Errorf("compact the store: %w", err)
	}
	return nil
}
