package sqlite

import (
	"context"
	"fmt"
)

// Commits returns how many groups were committed.
func (s *Store) Commits() int64 { return s.writer.commits.Load() }

// LimitPages makes the store behave as on a full disk once the file has n
// pages more than now; a negative n lifts the limit.
func (s *Store) LimitPages(ctx context.Context, n int) error {
	return s.write(ctx, func(t *tx) error {
		limit := 1 << 30
		if n >= 0 {
			pages, _, err := t.number(`PRAGMA page_count`)
			if err != nil {
				return err
			}
			limit = int(pages) + n
		}
		return t.control(fmt.Sprintf(`PRAGMA max_page_count = %d`, limit))
	})
}

// LimitLanes sets how many changed lanes are known at once.
func (s *Store) LimitLanes(n int) { s.writer.tx.changes.lanes.max = n }

// MaxTurn is how many candidates a claim looks at in one transaction.
const MaxTurn = maxTurn

// BackupLimited is Backup onto a disk that has room for so many pages.
func (s *Store) BackupLimited(ctx context.Context, path string, pages int) error {
	return s.backup(ctx, path, []string{fmt.Sprintf("max_page_count(%d)", pages)})
}

// SetReadOnly makes the writer's connection refuse writes as on a read-only
// disk. No write may be under way.
func (s *Store) SetReadOnly(_ context.Context, on bool) error {
	return s.writer.tx.conn.exec(fmt.Sprintf(`PRAGMA query_only = %v`, on))
}
