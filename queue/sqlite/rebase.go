package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// rebase walks over all that waits, whatever its priority: it is for the rare
// day on which the clock was wrong.
func (t *tx) rebase(op queue.Rebase) error {
	now := nanos(op.Now)
	var late []int64
	err := t.rows(`SELECT seq, spec FROM entries WHERE state = 'queued' AND runnable_at > ?
			AND (NOT ? OR created_at > ? OR dispatched_at > ?
				OR EXISTS (SELECT 1 FROM attempts WHERE entry = entries.seq AND ended_at > ?))`, []any{nanos(op.After), op.Future, now, now, now}, func(rows *sql.Rows) error {
		var seq int64
		var text string
		if err := rows.Scan(&seq, &text); err != nil {
			return err
		}
		var spec job.Spec
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			return fmt.Errorf("read the specification of entry %d: %w", seq, err)
		}
		if spec.RunnableAt == nil || !spec.RunnableAt.After(op.Now) {
			late = append(late, seq)
		}
		return nil
	})
	if err != nil || len(late) == 0 {
		return err
	}
	if err := t.protect(); err != nil {
		return err
	}
	for _, seq := range late {
		if err := t.exec(`UPDATE entries SET runnable_at = ? WHERE seq = ?`, now, seq); err != nil {
			return err
		}
	}
	return nil
}
